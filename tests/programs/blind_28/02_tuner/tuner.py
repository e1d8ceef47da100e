import logging
import random
import threading
import time

import torch.multiprocessing as mp

from objective import confirm_trial, run_trial

log = logging.getLogger("tuner")


class RandomSearch:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.trial = 0

    def suggest(self):
        self.trial += 1
        return {
            "trial": self.trial,
            "width": self.rng.choice([16, 32, 64]),
            "lr": 10 ** self.rng.uniform(-4, -1.5),
            "decay": 10 ** self.rng.uniform(-6, -3),
            "batch": self.rng.choice([16, 32, 64]),
        }


class Tuner:
    def __init__(self, workers, max_pending, startup_trials, confirm_seeds):
        self.pool = mp.get_context("fork").Pool(workers)
        self.slots = threading.BoundedSemaphore(max_pending)
        self.search = RandomSearch(seed=7)
        self.startup_trials = startup_trials
        self.confirm_seeds = confirm_seeds
        self.finished = 0
        self.best = None
        self.started = time.time()

    def on_result(self, outcome):
        self.finished += 1
        if self.finished % 10 == 0:
            log.info(
                "%d trials, best %s, %.1f trials/s",
                self.finished, self.best and f"{self.best['value']:.4f}",
                self.finished / (time.time() - self.started),
            )
        if self.finished > self.startup_trials and self.is_promising(outcome):
            mean = self.pool.apply(confirm_trial, (outcome["config"], self.confirm_seeds))
            log.info("trial %d confirmed: %.4f -> %.4f", outcome["config"]["trial"], outcome["value"], mean)
            self.record(outcome["config"], mean)
        elif self.finished <= self.startup_trials and self.is_promising(outcome):
            self.record(outcome["config"], outcome["value"])
        self.slots.release()

    def on_error(self, exc):
        log.warning("trial failed: %s", exc)
        self.slots.release()

    def is_promising(self, outcome):
        return self.best is None or outcome["value"] < 1.2 * self.best["value"]

    def record(self, config, value):
        if self.best is None or value < self.best["value"]:
            self.best = {"config": config, "value": value}

    def optimize(self, n_trials):
        for _ in range(n_trials):
            self.slots.acquire()
            self.pool.apply_async(
                run_trial, (self.search.suggest(),), callback=self.on_result, error_callback=self.on_error
            )
        self.pool.close()
        self.pool.join()
        return self.best
