"""Crawl flat listings with a process pool and keep price statistics."""
import argparse
import json
import logging
import os
import tempfile
import time

import numpy as np

from listings import parse
from stream import ProcessPool, Window

log = logging.getLogger("crawl")


class PriceTable:
    def __init__(self, path):
        self.out = open(path, "w")
        self.by_rooms = {}
        self.count = 0

    def add(self, row):
        self.out.write(json.dumps(row) + "\n")
        self.by_rooms.setdefault(row["rooms"], []).append(row["per_m2"])
        self.count += 1

    def median(self, rooms):
        return float(np.median(self.by_rooms[rooms])) if rooms in self.by_rooms else float("nan")

    def close(self):
        self.out.close()


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--listings", type=int, default=9000)
    p.add_argument("--workers", type=int, default=4)
    p.add_argument("--report-every", type=float, default=3.0)
    p.add_argument("--budget", type=float, default=120.0, help="seconds for this crawl")
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="flats_") as root:
        table = PriceTable(os.path.join(root, "flats.jsonl"))
        window = Window(3.0)
        pool = ProcessPool(parse, args.workers)
        report = started + args.report_every
        for row in pool(range(args.listings)):
            now = time.monotonic()
            table.add(row)
            window.add(now)
            if now >= report:
                log.info("%d of %d listings, %.1f/s, median of 2 rooms %.2f per m2",
                         table.count, args.listings, window.rate(), table.median(2))
                report = now + args.report_every
            if now - started > args.budget:
                log.info("crawl budget used up after %d listings", table.count)
                break
        table.close()


if __name__ == "__main__":
    main()
