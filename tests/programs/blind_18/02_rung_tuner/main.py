"""Random search with early stopping, a process per trial."""
import argparse
import logging
import multiprocessing as mp
import multiprocessing.connection as mpc
import random
import signal
import time
from dataclasses import dataclass, field

import torch

from scheduler import RungScheduler
from trial import run_trial

log = logging.getLogger("tuner")


@dataclass
class Running:
    trial_id: int
    config: dict
    process: mp.Process
    conn: mpc.Connection
    epoch: int = 0
    loss: float = float("nan")
    started: float = field(default_factory=time.monotonic)


class Tuner:
    def __init__(self, args):
        self.args = args
        self.ctx = mp.get_context("fork")
        self.rng = random.Random(args.seed)
        self.scheduler = RungScheduler()
        self.running = {}
        self.next_id = 0
        self.stopped = self.completed = self.failed = 0
        self.best = (float("inf"), None)

    def sample(self):
        return {"lr": 10 ** self.rng.uniform(-4, 0.3), "depth": self.rng.randint(1, 3),
                "hidden": self.rng.choice([16, 32, 64])}

    def launch(self):
        a = self.args
        ours, theirs = self.ctx.Pipe(duplex=False)
        config = self.sample()
        process = self.ctx.Process(
            target=run_trial, name=f"trial-{self.next_id}", daemon=True,
            args=(self.next_id, config, theirs, a.epochs, a.epoch_seconds, a.walltime))
        process.start()
        theirs.close()
        self.running[ours] = Running(self.next_id, config, process, ours)
        log.info("trial %d started pid %d %s", self.next_id, process.pid, config)
        self.next_id += 1

    def retire(self, run):
        run.process.join()
        run.conn.close()
        del self.running[run.conn]
        return run.process.exitcode

    def on_message(self, conn):
        run = self.running[conn]
        try:
            run.epoch, run.loss = conn.recv()
        except EOFError:
            code = self.retire(run)
            if code == 0:
                self.completed += 1
                log.info("trial %d completed, loss %.4f", run.trial_id, run.loss)
            else:
                self.failed += 1
                log.error("trial %d failed with exit code %s", run.trial_id, code)
            return
        if run.loss < self.best[0]:
            self.best = (run.loss, run.trial_id)
        if self.scheduler.on_result(run.trial_id, run.epoch, run.loss) == RungScheduler.STOP:
            run.process.terminate()
            code = self.retire(run)
            self.stopped += 1
            log.warning("trial %d pid %d stopped at epoch %d, loss %.4f (exit code %s)",
                        run.trial_id, run.process.pid, run.epoch, run.loss, code)

    def run(self):
        end = time.monotonic() + self.args.duration
        report = time.monotonic() + 10
        while time.monotonic() < end:
            while len(self.running) < self.args.parallel:
                self.launch()
            for conn in mpc.wait(list(self.running), timeout=1.0):
                self.on_message(conn)
            if time.monotonic() > report:
                report += 10
                log.info("%d started, %d stopped early, %d completed, %d failed, best %.4f (trial %s)",
                         self.next_id, self.stopped, self.completed, self.failed, *self.best)
        for run in list(self.running.values()):
            run.process.terminate()
            self.retire(run)
        log.info("search finished: best loss %.4f by trial %s", *self.best)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--parallel", type=int, default=4)
    p.add_argument("--epochs", type=int, default=27)
    p.add_argument("--epoch-seconds", type=float, default=0.9)
    p.add_argument("--duration", type=float, default=115)
    p.add_argument("--walltime", type=int, default=140)
    p.add_argument("--seed", type=int, default=3)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    signal.alarm(args.walltime)
    torch.set_num_threads(1)
    Tuner(args).run()


if __name__ == "__main__":
    main()
