"""Supervisor of a small actor/learner run with live configuration."""
import argparse
import logging
import multiprocessing as mp
import os
import signal
import tempfile
import time

import roles
from config import ConfigFile

log = logging.getLogger("supervisor")


class EpsilonSchedule:
    """Writes a new configuration now and then, as an operator would."""

    def __init__(self, file, first, every):
        self.file, self.next, self.every = file, time.monotonic() + first, every

    def tick(self):
        if time.monotonic() >= self.next:
            self.next += self.every
            values = self.file.read()
            values["epsilon"] = round(values["epsilon"] * 0.8, 3)
            self.file.write(values)


class Supervisor:
    def __init__(self, args, folder):
        self.args = args
        self.path = os.path.join(folder, "run.json")
        self.config = ConfigFile(self.path)
        ctx = mp.get_context("spawn")
        self.ready, self.up = ctx.Event(), ctx.Semaphore(0)
        self.episodes, self.records = ctx.Queue(maxsize=64), ctx.Queue(maxsize=400)
        self.boxes = [ctx.Queue(maxsize=1) for _ in range(args.actors)]
        common = (self.up, self.ready)
        self.children = [
            ctx.Process(target=roles.learner, name="learner", daemon=True,
                        args=(self.path, *common, self.boxes, self.episodes)),
            ctx.Process(target=roles.recorder, name="recorder", daemon=True,
                        args=(os.path.join(folder, "episodes.csv"), *common, self.records))]
        for i in range(args.actors):
            self.children.append(ctx.Process(
                target=roles.actor, name=f"actor{i}", daemon=True,
                args=(i, self.path, *common, self.boxes[i], self.episodes, self.records)))

    def notify(self):
        log.info("configuration changed, telling %d processes", len(self.children))
        for child in self.children:
            os.kill(child.pid, signal.SIGUSR2)

    def run(self):
        for child in self.children:
            child.start()
        for _ in self.children:
            self.up.acquire()
        self.ready.set()
        schedule = EpsilonSchedule(self.config, self.args.first_change, self.args.change_every)
        stamp = self.config.mtime()
        end = time.monotonic() + self.args.seconds
        while time.monotonic() < end:
            schedule.tick()
            if self.config.mtime() != stamp:
                stamp = self.config.mtime()
                self.notify()
            time.sleep(0.2)
        for child in self.children:
            child.terminate()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--actors", type=int, default=2)
    ap.add_argument("--first-change", type=float, default=12.0)
    ap.add_argument("--change-every", type=float, default=1000.0)
    ap.add_argument("--seconds", type=float, default=115.0)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s [supervisor] %(message)s")
    with tempfile.TemporaryDirectory(prefix="live_") as folder:
        Supervisor(args, folder).run()


if __name__ == "__main__":
    main()
