"""Image generation API with multi-process diffusion workers and simulated users."""
import argparse
import logging
import os
import random
import threading
import time

from api import ImageApi
from executor import MultiprocExecutor


class Connection:
    """A client connection; impatient users hang up before the image is there."""

    def __init__(self, patience):
        self.closed = threading.Event()
        if patience is not None:
            timer = threading.Timer(patience, self.closed.set)
            timer.daemon = True
            timer.start()


class Users:
    def __init__(self, api, rate, impatient, seed=0):
        self.api, self.rate, self.impatient = api, rate, impatient
        self.rng = random.Random(seed)
        self.limit = threading.Semaphore(32)

    def _visit(self, seed, patience):
        try:
            self.api.generations(seed, Connection(patience))
        finally:
            self.limit.release()

    def run(self, until):
        due = time.monotonic()
        while time.monotonic() < until:
            due += self.rng.expovariate(self.rate)
            time.sleep(max(0.0, due - time.monotonic()))
            patience = 0.001 if self.rng.random() < self.impatient else None
            self.limit.acquire()
            threading.Thread(target=self._visit, args=(self.rng.randrange(1 << 30), patience),
                             daemon=True).start()


def report(api, every=5.0):
    while True:
        time.sleep(every)
        with api.lock:
            active = len(api.active)
        logging.info("finished %d, client aborts %d, active requests %d", api.finished,
                     api.aborted, active)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--rate", type=float, default=14.0, help="requests per second")
    p.add_argument("--steps", type=int, default=250)
    p.add_argument("--impatient", type=float, default=0.6, help="share of users that hang up")
    p.add_argument("--duration", type=float, default=125.0)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    executor = MultiprocExecutor(args.workers)
    executor.start()
    api = ImageApi(executor, args.steps)
    threading.Thread(target=report, args=(api,), daemon=True).start()
    Users(api, args.rate, args.impatient).run(time.monotonic() + args.duration)
    for w in executor.workers:
        w.terminate()
    os._exit(0)


if __name__ == "__main__":
    main()
