"""Evolution strategy; every genome is scored in a fresh worker process."""
import argparse
import logging
import multiprocessing as mp

import numpy as np
import torch

from evolve import evaluate, genome_size

log = logging.getLogger("evolve")


class Population:
    def __init__(self, size, seed=0):
        self.rng = np.random.default_rng(seed)
        self.mean = np.zeros(genome_size(), np.float32)
        self.size, self.sigma = size, 0.3

    def ask(self):
        self.members = self.mean + self.sigma * self.rng.standard_normal((self.size, len(self.mean))).astype(np.float32)
        return self.members

    def tell(self, fitness):
        order = np.argsort(fitness)[::-1][: self.size // 4]
        self.mean = self.members[order].mean(0)
        self.sigma *= 0.97


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--generations", type=int, default=200)
    ap.add_argument("--population", type=int, default=8)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--seconds", type=float, default=1.5)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    pop, pids = Population(args.population), set()
    with mp.get_context("fork").Pool(args.workers, maxtasksperchild=1) as pool:
        for gen in range(args.generations):
            jobs = [(i, g, args.seconds) for i, g in enumerate(pop.ask())]
            fitness = np.zeros(len(jobs))
            for index, value, pid in pool.imap_unordered(evaluate, jobs):
                fitness[index] = value
                pids.add(pid)
            pop.tell(fitness)
            log.info("generation %d best %.4f mean %.4f, %d workers used so far", gen, fitness.max(), fitness.mean(), len(pids))
    log.info("finished")


if __name__ == "__main__":
    main()
