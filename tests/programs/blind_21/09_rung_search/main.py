"""Learning-rate search: several trials train side by side, the worse half goes at each rung."""
import argparse
import logging
import multiprocessing as mp
import os
import random
import threading
import time

import objective
from scheduler import SuccessiveHalving, Trial

log = logging.getLogger("search")


class Search:
    def __init__(self, args):
        self.args = args
        self.ctx = mp.get_context("fork")
        self.reports = {}
        self.scheduler = SuccessiveHalving(args.rungs, args.keep)
        rng = random.Random(args.seed)
        self.trials = []
        for i in range(args.trials):
            config = {"lr": 10 ** rng.uniform(-4, -1.3), "width": rng.choice([32, 64, 128]), "seed": i}
            self.trials.append(Trial(f"trial{i}", config))

    def launch(self):
        for t in self.trials:
            self.reports[t.name] = self.ctx.SimpleQueue()
            t.process = self.ctx.Process(
                target=objective.train, name=t.name, daemon=True,
                args=(t.name, t.config, self.reports[t.name], self.args.max_seconds + 15))
            t.process.start()
            log.info("%s started: %s", t.name, t.config)

    def collect(self):
        for t in self.trials:
            reports = self.reports[t.name]
            while t.state == "running" and not reports.empty():
                _, step, loss = reports.get()
                t.losses.append(loss)

    def stop(self, trial, state):
        trial.process.terminate()
        trial.process.join()
        trial.state = state
        log.info("%s %s (exit code %s)", trial.name, state, trial.process.exitcode)

    def run(self):
        self.launch()
        started = said = time.time()
        while time.time() - started < self.args.max_seconds:
            self.collect()
            for t in self.trials:
                if t.state == "running" and not t.process.is_alive():
                    raise RuntimeError(f"{t.name} failed with exit code {t.process.exitcode}")
            if self.scheduler.due(time.time() - started):
                log.info("rung at %.0fs", time.time() - started)
                for t in self.scheduler.cut(self.trials):
                    self.stop(t, "pruned")
            if time.time() - said > 5:
                said = time.time()
                log.info("%s", "  ".join(f"{t.name} {t.score:.4f}" for t in self.trials
                                         if t.state == "running"))
            time.sleep(0.5)
        best = min((t for t in self.trials if t.state == "running"), key=lambda t: t.score)
        self.stop(best, "completed")
        log.info("best %s %s: %.4f", best.name, best.config, best.score)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--trials", type=int, default=5)
    p.add_argument("--rungs", type=float, nargs="*", default=[14, 38, 64])
    p.add_argument("--keep", type=float, default=0.55)
    p.add_argument("--seed", type=int, default=5)
    p.add_argument("--max-seconds", type=float, default=105)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    limit = threading.Timer(args.max_seconds + 10, os._exit, (0,))
    limit.daemon = True
    limit.start()
    Search(args).run()


if __name__ == "__main__":
    main()
