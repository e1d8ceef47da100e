import argparse
import logging
import time
from concurrent.futures import ProcessPoolExecutor

from labels import LabelClient, score_page

log = logging.getLogger("labels")


class SyncJob:
    def __init__(self, client, workers):
        self.client = client
        self.pool = ProcessPoolExecutor(max_workers=workers)

    def run(self, pages):
        for page in range(pages):
            rows = self.client.fetch(page)
            scores = list(self.pool.map(score_page, [rows[i::6] for i in range(6)]))
            log.info("page %d: %d rows, mean score %.3f", page, len(rows), sum(scores) / len(scores))
        self.pool.shutdown()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--pages", type=int, default=8)
    p.add_argument("--calls-per-minute", type=float, default=3.6)
    p.add_argument("--workers", type=int, default=2)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    SyncJob(LabelClient(60 / args.calls_per_minute), args.workers).run(args.pages)
    log.info("sync complete")


if __name__ == "__main__":
    main()
