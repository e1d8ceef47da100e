import argparse
import logging
import multiprocessing as mp
import random
import time
from concurrent.futures import TimeoutError

from pebble import ProcessPool

from objective import objective

log = logging.getLogger("search")


class Study:
    def __init__(self, seed=0):
        self.rng = random.Random(seed)
        self.done, self.pruned, self.best = 0, 0, (float("inf"), None)

    def ask(self):
        return {"depth": self.rng.choice([1, 2, 4, 8, 16, 32]), "lr": 10 ** self.rng.uniform(-3, -1),
                "seed": self.rng.randrange(10**6)}

    def tell(self, params, value):
        self.done += 1
        if value is None:
            self.pruned += 1
        elif value < self.best[0]:
            self.best = (value, params)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--trials", type=int, default=110)
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--trial-budget", type=float, default=3.0, help="seconds, slower trials are cut off")
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    study = Study()
    t0 = time.monotonic()
    with ProcessPool(max_workers=args.workers, context=mp.get_context("fork")) as pool:
        trials = []
        for _ in range(args.trials):
            params = study.ask()
            trials.append((params, pool.schedule(objective, args=(params,), timeout=args.trial_budget)))
        for params, future in trials:
            try:
                study.tell(params, future.result())
            except TimeoutError:
                study.tell(params, None)
                log.info("trial with depth %d cut off after %.0fs", params["depth"], args.trial_budget)
            if study.done % 10 == 0:
                log.info("%d trials, %d cut off, best %.4f (%.0fs)", study.done, study.pruned, study.best[0],
                         time.monotonic() - t0)
    log.info("best %.4f with %s", *study.best)


if __name__ == "__main__":
    main()
