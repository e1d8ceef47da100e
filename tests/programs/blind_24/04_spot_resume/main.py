"""Training on spot capacity: the job is taken away once and started again."""
import argparse
import logging
import multiprocessing as mp
import os
import shutil
import socket
import tempfile
import time

import torch  # noqa: F401  (loaded once here, inherited by the ranks)

import worker

log = logging.getLogger("spot")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class SpotJob:
    def __init__(self, args, scratch):
        self.args, self.scratch = args, scratch
        self.ctx = mp.get_context("fork")
        self.procs = []

    def start(self):
        port = free_port()
        self.procs = [self.ctx.Process(target=worker.entry, name=f"rank{r}",
                                       args=(r, self.args.world, port, self.scratch, self.args))
                      for r in range(self.args.world)]
        for p in self.procs:
            p.start()

    def preempt(self):
        log.info("capacity withdrawn, stopping all ranks")
        for p in self.procs:
            p.kill()
        for p in self.procs:
            p.join()

    def running(self):
        return any(p.is_alive() for p in self.procs)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--world", type=int, default=3)
    ap.add_argument("--epochs", type=int, default=400)
    ap.add_argument("--steps", type=int, default=12)
    ap.add_argument("--withdraw-after-epoch", type=int, default=2)
    ap.add_argument("--lease", type=float, default=130.0, help="seconds we pay for")
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s [spot] %(message)s")
    scratch = tempfile.mkdtemp(prefix="spot_")
    until = time.monotonic() + args.lease
    job = SpotJob(args, scratch)
    try:
        job.start()
        marker = os.path.join(scratch, "node0", f"snapshot_e{args.withdraw_after_epoch}.pt")
        while job.running() and not os.path.exists(marker):
            time.sleep(0.05)
        job.preempt()
        time.sleep(0.5)
        log.info("capacity is back")
        job.start()
        while job.running() and time.monotonic() < until:
            time.sleep(0.5)
        log.info("lease over")
    finally:
        for p in job.procs:
            if p.is_alive():
                p.kill()
                p.join()
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
