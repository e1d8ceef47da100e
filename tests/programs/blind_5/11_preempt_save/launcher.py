import argparse
import logging
import multiprocessing as mp
import os
import random
import signal
import tempfile
import time

from trainer import train_job

log = logging.getLogger("launcher")


class SpotMarket:
    """Forwards the provider's preemption notices to the jobs on this host."""

    def __init__(self, interval, seed):
        self.interval = interval
        self.rng = random.Random(seed)

    def next_notice(self):
        time.sleep(self.interval * self.rng.uniform(0.7, 1.3))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--jobs", nargs="+", default=["teacher", "student"])
    p.add_argument("--steps", type=int, default=2000)
    p.add_argument("--accumulate", type=int, default=12)
    p.add_argument("--notice-every", type=float, default=1.5)
    p.add_argument("--seed", type=int, default=11)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s launcher %(message)s")
    out = tempfile.mkdtemp(prefix="spot_")
    procs = [mp.Process(target=train_job, args=(n, out, args)) for n in args.jobs]
    for q in procs:
        q.start()
    market = SpotMarket(args.notice_every, args.seed)
    time.sleep(3)
    while any(q.is_alive() for q in procs):
        market.next_notice()
        q = market.rng.choice(procs)
        if q.is_alive():
            os.kill(q.pid, signal.SIGUSR1)
    log.info("all jobs finished")


if __name__ == "__main__":
    main()
