"""Import daily meter files with a few task workers."""
import argparse
import logging
import multiprocessing as mp
import queue
import random
import time

from broker import Message, Worker
from importer import COLUMNS, import_day


def run_worker(idx, tasks, args):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(name)s %(message)s")
    random.seed(idx)
    worker = Worker(tasks, {"import_day": import_day}, max_retries=args.max_retries)
    worker.run(stop_at=time.monotonic() + args.max_seconds)


class FileFeed:
    """Stands in for the landing directory: hands out one meter file after another."""

    def __init__(self, meters, bad_share, seed):
        self.rng = random.Random(seed)
        self.meters, self.bad_share = meters, bad_share
        self.day = 0

    def next_file(self):
        self.day += 1
        lines = []
        for _ in range(self.meters):
            base = self.rng.uniform(0.05, 0.9)
            lines.append(";".join(f"{base + 0.01 * k:.3f}" for k in range(COLUMNS)))
        if self.rng.random() < self.bad_share:
            bad = lines[-1].split(";")
            bad[self.rng.randrange(COLUMNS)] = "n/a"
            lines[-1] = ";".join(bad)
        return f"day-{self.day:05d}", "\n".join(lines).encode("ascii")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--meters", type=int, default=300, help="meters per file")
    p.add_argument("--bad-share", type=float, default=0.25)
    p.add_argument("--rate", type=float, default=24.0, help="files per second")
    p.add_argument("--max-retries", type=int, default=1)
    p.add_argument("--max-seconds", type=float, default=115.0)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(name)s %(message)s")
    log = logging.getLogger("feed")
    ctx = mp.get_context("spawn")
    tasks = ctx.Queue(maxsize=16)
    workers = [ctx.Process(target=run_worker, args=(i, tasks, args), name=f"importer-{i}", daemon=True)
               for i in range(args.workers)]
    for w in workers:
        w.start()
    feed = FileFeed(args.meters, args.bad_share, seed=4)
    end = time.monotonic() + args.max_seconds
    last = time.monotonic()
    while time.monotonic() < end and any(w.is_alive() for w in workers):
        begin = time.monotonic()
        name, blob = feed.next_file()
        try:
            tasks.put(Message("import_day", (name, blob)), timeout=5)
        except queue.Full:
            log.warning("workers are behind, %s postponed", name)
        if time.monotonic() - last > 10:
            last = time.monotonic()
            log.info("%d files handed out", feed.day)
        time.sleep(max(0.0, 1 / args.rate - (time.monotonic() - begin)))
    for _ in workers:
        tasks.put(None)
    for w in workers:
        w.join(10)


if __name__ == "__main__":
    main()
