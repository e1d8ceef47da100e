"""Monte-Carlo response features of a detector, one chunk per task."""
import argparse
import logging
import time
from multiprocessing import get_context

import torch

log = logging.getLogger("mc")


class DetectorSim:
    def __init__(self, n_channels=256):
        g = torch.Generator().manual_seed(0)
        self.gain = torch.rand(n_channels, generator=g) + 0.5

    def response(self, seed, events):
        torch.set_num_threads(1)
        g = torch.Generator().manual_seed(seed)
        dep = torch.empty(events, self.gain.numel()).exponential_(1.0, generator=g)
        time.sleep(0.4)
        return torch.histc(dep * self.gain, bins=4096, min=0, max=20)


SIM = DetectorSim()


def run_chunk(job):
    seed, events = job
    return SIM.response(seed, events)


class Accumulator:
    def __init__(self):
        self.total, self.chunks = torch.zeros(4096), 0

    def add(self, h):
        self.total += h
        self.chunks += 1


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--chunks", type=int, default=400)
    ap.add_argument("--events", type=int, default=2000)
    ap.add_argument("--workers", type=int, default=3)
    ap.add_argument("--tasks-per-child", type=int, default=6, help="the simulator leaks, renew the processes")
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    acc, t0 = Accumulator(), time.time()
    jobs = [(s, args.events) for s in range(args.chunks)]
    with get_context("fork").Pool(args.workers, maxtasksperchild=args.tasks_per_child) as pool:
        for h in pool.imap(run_chunk, jobs):
            acc.add(h)
            if acc.chunks % 5 == 0:
                log.info("chunk %d/%d (%.1f/s)", acc.chunks, args.chunks, acc.chunks / (time.time() - t0))
    torch.save(acc.total, "/tmp/response.pt")


if __name__ == "__main__":
    main()
