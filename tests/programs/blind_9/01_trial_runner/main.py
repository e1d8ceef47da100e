"""Random search over a small regressor with k-fold scoring."""
import argparse
import logging
import multiprocessing as mp
import random
import time

import torch

from objective import CrossValidation
from resources import CpuSlots

log = logging.getLogger("tune")


def run_trial(trial_id, config, slots, folds, results):
    torch.set_num_threads(1)
    with slots.claim(f"trial {trial_id}"):
        cv = CrossValidation(slots, folds)
        for rung in range(config["rungs"]):
            score = cv.score(trial_id, config)
            log.info("trial %d rung %d score %.4f", trial_id, rung, score)
    results.put((trial_id, score))


class Tuner:
    def __init__(self, args):
        self.args = args
        self.ctx = mp.get_context("fork")
        self.slots = CpuSlots(args.cpus, self.ctx)
        self.results = self.ctx.Queue()
        self.running = {}
        self.done = {}
        self.rng = random.Random(args.seed)

    def sample(self):
        return {"lr": 10 ** self.rng.uniform(-4, -2), "width": self.rng.choice([16, 32, 64]),
                "rungs": self.args.rungs, "fold_seconds": 0.4}

    def launch(self, trial_id):
        p = self.ctx.Process(target=run_trial, name=f"trial-{trial_id}",
                             args=(trial_id, self.sample(), self.slots, self.args.folds, self.results))
        p.start()
        self.running[trial_id] = p
        log.info("launched trial %d (pid %d)", trial_id, p.pid)

    def run(self):
        next_id, last_launch, last_status = 0, 0.0, time.monotonic()
        while len(self.done) < self.args.num_samples:
            now = time.monotonic()
            if (next_id < self.args.num_samples and len(self.running) < self.args.max_concurrent
                    and now - last_launch > self.args.launch_interval):
                self.launch(next_id)
                next_id, last_launch = next_id + 1, now
            if now - last_status > 5:
                log.info("== status: %d running, %d finished, %d cpus free ==",
                         len(self.running), len(self.done), self.slots.available())
                last_status = now
            while not self.results.empty():
                trial_id, score = self.results.get()
                self.running.pop(trial_id).join()
                self.done[trial_id] = score
            time.sleep(0.2)
        best = min(self.done, key=self.done.get)
        log.info("best trial %d: %.4f", best, self.done[best])


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--cpus", type=int, default=3)
    ap.add_argument("--max-concurrent", type=int, default=3)
    ap.add_argument("--num-samples", type=int, default=40)
    ap.add_argument("--folds", type=int, default=3)
    ap.add_argument("--rungs", type=int, default=6)
    ap.add_argument("--launch-interval", type=float, default=2.5)
    ap.add_argument("--seed", type=int, default=0)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    Tuner(ap.parse_args()).run()
