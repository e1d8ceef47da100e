"""Tensor completion from a few observed entries."""
import argparse
import logging
import time

import torch

from cp import CPTensor, Optimizer

log = logging.getLogger("complete")


def sample(truth, n, gen):
    idx = torch.stack([torch.randint(0, s, (n,), generator=gen) for s in (80, 80, 80)], 1)
    with torch.no_grad():
        return idx, truth.at(idx)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--rank", type=int, default=12)
    p.add_argument("--iterations", type=int, default=100000)
    p.add_argument("--test-points", type=int, default=3000)
    p.add_argument("--pause", type=float, default=0.1, help="seconds between iterations, to keep the laptop cool")
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    gen = torch.Generator().manual_seed(0)
    truth = CPTensor((80, 80, 80), 4)
    test_idx, test_values = sample(truth, args.test_points, gen)
    opt = Optimizer(CPTensor((80, 80, 80), args.rank), lr=1e-2)
    for it in range(args.iterations):
        opt.step(*sample(truth, 500, gen), test_idx, test_values)
        if it % 25 == 0:
            log.info("iteration %d train %.2e test %.2e", it, opt.loss_history[-1], opt.test_history[-1])
        if opt.converged():
            break
        time.sleep(args.pause)


if __name__ == "__main__":
    main()
