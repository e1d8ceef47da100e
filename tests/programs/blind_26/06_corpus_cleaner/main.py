"""Cleans the pages of a crawl and scores their quality."""
import argparse
import logging
import signal
import sys
import time

from cluster import Scheduler
from corpus import Crawl


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--pages", type=int, default=100_000)
    p.add_argument("--rate", type=float, default=60.0, help="pages per second that the source gives")
    p.add_argument("--listing-at", type=int, default=90)
    p.add_argument("--seed", type=int, default=8)
    p.add_argument("--heartbeat-interval", type=float, default=0.5)
    p.add_argument("--worker-ttl", type=float, default=4.0)
    p.add_argument("--allowed-failures", type=int, default=0)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    crawl = Crawl(args.pages, args.seed, args.listing_at)

    def load(index):
        time.sleep(1 / args.rate)
        return crawl.page(index)

    Scheduler(args.workers, args.heartbeat_interval, args.worker_ttl, args.allowed_failures).run(range(args.pages), load)


if __name__ == "__main__":
    main()
