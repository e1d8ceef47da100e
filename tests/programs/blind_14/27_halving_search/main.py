"""Hyper-parameter search: trials run as processes, bad ones are stopped early."""
import argparse
import logging
import math
import multiprocessing as mp
import random
import time
from collections import Counter
from multiprocessing import connection

START = time.monotonic()

from halving import SuccessiveHalving
from trial import run_trial

log = logging.getLogger("search")


class Search:
    def __init__(self, args):
        self.args = args
        self.rng = random.Random(args.seed)
        self.pruner = SuccessiveHalving(args.min_resource, args.reduction_factor, args.max_epochs)
        self.running = {}
        self.states = Counter()
        self.best = (0.0, None)
        self.number = 0

    def suggest(self):
        r = self.rng
        return {"lr": 10 ** r.uniform(-3, 0), "hidden": r.choice([32, 64, 128]), "layers": r.randint(1, 3),
                "dropout": r.uniform(0, 0.5), "batch_size": r.choice([64, 128])}

    def start_trial(self):
        here, there = mp.Pipe(duplex=False)
        config = self.suggest()
        p = mp.Process(target=run_trial, args=(self.number, config, self.args.max_epochs, there),
                       name=f"trial-{self.number}", daemon=True)
        p.start()
        there.close()
        self.running[here] = (self.number, p, config)
        self.number += 1

    def end_trial(self, conn, state, value=float("nan"), epoch=0):
        number, p, config = self.running.pop(conn)
        if state == "PRUNED":
            p.terminate()
        p.join()
        conn.close()
        self.states[state] += 1
        log.info("trial %d %s at epoch %d, accuracy %.3f, lr %.4f", number, state, epoch, value, config["lr"])

    def run(self):
        last = {}
        while time.monotonic() - START < self.args.timeout:
            while len(self.running) < self.args.concurrent:
                self.start_trial()
            for conn in connection.wait(list(self.running), timeout=1):
                try:
                    epoch, value = conn.recv()
                except EOFError:
                    self.end_trial(conn, "COMPLETE", *last.get(conn, (math.nan, 0)))
                    continue
                last[conn] = (value, epoch)
                self.best = max(self.best, (value, self.running[conn][0]))
                if self.pruner.should_prune(epoch, value):
                    self.end_trial(conn, "PRUNED", value, epoch)
        for conn in list(self.running):
            self.end_trial(conn, "PRUNED", *last.get(conn, (math.nan, 0)))
        log.info("%d trials: %s, best %.3f (trial %s)", self.number, dict(self.states), *self.best)


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--concurrent", type=int, default=4)
    p.add_argument("--min-resource", type=int, default=2)
    p.add_argument("--reduction-factor", type=int, default=3)
    p.add_argument("--max-epochs", type=int, default=54)
    p.add_argument("--timeout", type=float, default=100.0, help="seconds for the whole search")
    p.add_argument("--seed", type=int, default=4)
    return p.parse_args()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    Search(parse_args()).run()
