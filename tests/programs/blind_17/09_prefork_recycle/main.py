"""Crawls a list of pages and extracts feature vectors with a prefork worker pool."""
import argparse
import logging
import multiprocessing as mp
import queue
import random
import time

from extract import extract_features, fetch_page
from pool import PreforkPool

log = logging.getLogger("crawler")


class Job:
    """Called in a worker process for every task."""

    def __init__(self, min_seconds):
        self.min_seconds = min_seconds
        self.cache = {}

    def __call__(self, task):
        started = time.monotonic()
        page = fetch_page(task["url"], task["size"], self.cache)
        features = extract_features(page)
        remaining = self.min_seconds - (time.monotonic() - started)
        if remaining > 0:
            time.sleep(remaining)
        return {"url": task["url"], "features": features.mean().item(), "seconds": time.monotonic() - started}


class Frontier:
    """Pages still to be visited."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.count = 0

    def next(self):
        self.count += 1
        host = self.rng.randint(1, 40)
        return {"url": f"http://host{host:02d}.example/{self.count}.html", "size": self.rng.randint(40, 160)}


class Stats:
    def __init__(self, interval):
        self.interval = interval
        self.started = self.last = time.monotonic()
        self.total = self.window = 0

    def add(self, result):
        self.total += 1
        self.window += 1

    def report(self, pool):
        now = time.monotonic()
        if now - self.last < self.interval:
            return
        log.info("%d pages, %.1f pages/s in the last %.0f s, workers %s", self.total,
                 self.window / (now - self.last), now - self.last, pool.pids())
        self.last, self.window = now, 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--concurrency", type=int, default=3)
    parser.add_argument("--max-tasks-per-child", type=int, default=8)
    parser.add_argument("--task-seconds", type=float, default=0.6)
    parser.add_argument("--backlog", type=int, default=12)
    parser.add_argument("--report-interval", type=float, default=5.0)
    parser.add_argument("--run-seconds", type=float, default=115)
    parser.add_argument("--seed", type=int, default=4)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="[%(asctime)s: %(levelname)s/%(processName)s] %(message)s")

    pool = PreforkPool(Job(args.task_seconds), args.concurrency, args.max_tasks_per_child)
    frontier, stats = Frontier(args.seed), Stats(args.report_interval)
    pool.start()
    outstanding = 0
    deadline = time.monotonic() + args.run_seconds
    try:
        while time.monotonic() < deadline:
            while outstanding < args.backlog:
                pool.submit(frontier.next())
                outstanding += 1
            try:
                stats.add(pool.results.get(timeout=0.25))
                outstanding -= 1
            except queue.Empty:
                pass
            pool.maintain()
            stats.report(pool)
    finally:
        pool.terminate()
    log.info("visited %d pages", stats.total)


if __name__ == "__main__":
    main()
