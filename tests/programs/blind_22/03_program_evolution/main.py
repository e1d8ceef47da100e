"""Evolve small programs; candidates are evaluated in worker processes."""
import argparse
import asyncio
import logging
import multiprocessing as mp
import os
import random
import threading
import time

from evaluator import Evaluator
from programs import mutate

log = logging.getLogger("evolve")


def setup_logging():
    logging.basicConfig(level=logging.INFO,
                        format="%(asctime)s %(processName)s %(levelname)s %(message)s")


def run_iteration(evaluator, name, source):
    return asyncio.run(evaluator.evaluate(name, source))


def worker_main(tasks, results, timeout):
    setup_logging()
    evaluator = Evaluator(timeout)
    while True:
        task = tasks.get()
        if task is None:
            return
        name, source = task
        results.put(run_iteration(evaluator, name, source))


class Archive:
    def __init__(self, size):
        self.size = size
        self.best = []

    def add(self, metrics):
        self.best.append((metrics["stage2"], metrics["name"]))
        self.best.sort(reverse=True)
        del self.best[self.size:]


class Controller:
    def __init__(self, args):
        self.args = args
        self.rng = random.Random(args.seed)
        ctx = mp.get_context("fork")
        self.tasks, self.results = ctx.Queue(), ctx.Queue()
        self.workers = [ctx.Process(target=worker_main, name=f"evaluator-{i}",
                                    args=(self.tasks, self.results, args.timeout), daemon=True)
                        for i in range(args.workers)]
        self.archive = Archive(10)

    def generation(self, number):
        for i in range(self.args.population):
            self.tasks.put((f"candidate-{number}-{i}", mutate(self.rng, number)))
        errors = 0
        for _ in range(self.args.population):
            metrics = self.results.get()
            errors += metrics["error"] is not None
            self.archive.add(metrics)
        log.info("generation %d done, %d failed, best %s", number, errors, self.archive.best[0])

    def run(self):
        for w in self.workers:
            w.start()
        for number in range(self.args.generations):
            self.generation(number)
        for _ in self.workers:
            self.tasks.put(None)
        for w in self.workers:
            w.join()


def start_time_limit(seconds):
    def stop():
        time.sleep(seconds)
        log.error("wall-clock limit reached, stopping")
        os._exit(0)
    threading.Thread(target=stop, name="wall-clock", daemon=True).start()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--population", type=int, default=24)
    p.add_argument("--generations", type=int, default=400)
    p.add_argument("--timeout", type=float, default=4.0)
    p.add_argument("--seed", type=int, default=3)
    p.add_argument("--wall-clock", type=float, default=130)
    args = p.parse_args()
    setup_logging()
    controller = Controller(args)
    start_time_limit(args.wall_clock)
    controller.run()


if __name__ == "__main__":
    main()
