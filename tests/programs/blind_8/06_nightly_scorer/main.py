import argparse
import logging
import multiprocessing as mp
import time

from scorer import ScoreWorker

log = logging.getLogger("scorer")


class Timetable:
    def __init__(self, period, runs):
        self.period = period
        self.runs = runs

    def __iter__(self):
        for n in range(self.runs):
            yield n
            time.sleep(self.period)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--period", type=float, default=25.0)
    p.add_argument("--runs", type=int, default=5)
    p.add_argument("--tables", type=int, default=6)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")

    requests, replies = mp.Queue(), mp.Queue()
    workers = [ScoreWorker(i, requests, replies) for i in range(args.workers)]
    for w in workers:
        w.start()
    for n in Timetable(args.period, args.runs):
        for table in range(args.tables):
            requests.put((n, table))
        done = [replies.get() for _ in range(args.tables)]
        log.info("run %d: %d tables scored, next run in %.0fs", n, len(done), args.period)
    for _ in workers:
        requests.put(None)
    for w in workers:
        w.join()
    log.info("all runs complete")


if __name__ == "__main__":
    main()
