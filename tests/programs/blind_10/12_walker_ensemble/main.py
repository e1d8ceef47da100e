"""Samples the posterior of an emulator with an ensemble of walkers."""
import argparse
import logging
import multiprocessing as mp
import time

import torch

from sampler import EnsembleSampler, init_worker

log = logging.getLogger("walkers")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--walkers", type=int, default=24)
    parser.add_argument("--dim", type=int, default=5)
    parser.add_argument("--objects", type=int, default=300000)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--seconds", type=float, default=130)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    deadline = time.monotonic() + args.seconds
    with mp.Pool(args.workers, initializer=init_worker) as pool:
        sampler = EnsembleSampler(pool, args.walkers, args.dim, args.objects)
        for number in range(args.steps):
            accepted, seconds = sampler.step()
            log.info("step %d of %d: %.2fs, accepted %.2f", number, args.steps, seconds, accepted)
            if time.monotonic() > deadline:
                break


if __name__ == "__main__":
    main()
