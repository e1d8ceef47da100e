"""Bayesian search for the maximum of a likelihood with a GP surrogate."""
import argparse
import logging
import time

import torch

from gp import GaussianProcess
from restarts import MultiStart

log = logging.getLogger("search")


def log_likelihood(x):
    a, b = x[:, 0], x[:, 1]
    rosen = (1 - a).pow(2) + 5 * (b - a.pow(2)).pow(2)
    return -0.2 * rosen + 0.05 * torch.sin(7 * x).sum(1)


class Search:
    def __init__(self, args):
        self.args = args
        torch.manual_seed(args.seed)
        self.gp = GaussianProcess(args.dim)
        x = 4 * torch.rand(args.initial, args.dim) - 2
        self.gp.add(x, log_likelihood(x))
        self.starts = MultiStart(args.workers, args.restarts, args.steps)

    def iterate(self, it):
        begin = time.perf_counter()
        nll = self.starts.fit(self.gp, 1000 * it)
        score, point = self.starts.next_point(self.gp, 1000 * it + 500)
        value = log_likelihood(point)
        self.gp.add(point, value)
        log.info("iter %d  points %d  nll %.2f  score %.3f  best %.4f  %.2f s",
                 it, len(self.gp.x), nll, score, self.gp.y.max().item(), time.perf_counter() - begin)

    def run(self):
        for it in range(self.args.iterations):
            self.iterate(it)


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--dim", type=int, default=3)
    p.add_argument("--initial", type=int, default=30)
    p.add_argument("--iterations", type=int, default=400)
    p.add_argument("--restarts", type=int, default=4)
    p.add_argument("--steps", type=int, default=40)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--seed", type=int, default=3)
    return p.parse_args()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    Search(parse_args()).run()
