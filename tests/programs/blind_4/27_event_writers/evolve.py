"""Evolution strategy: each individual is a short run with its own event file."""
import argparse
import logging
import tempfile
import time

import numpy as np

from events import EventWriter

log = logging.getLogger("evolve")


def evaluate(genome, writer, rng, steps=20):
    x = np.zeros_like(genome)
    for step in range(steps):
        x += 0.1 * (genome - x) + rng.normal(scale=0.01, size=x.shape)
        writer.add_scalar("distance", np.linalg.norm(x - 1), step)
        time.sleep(0.004)
    return -np.linalg.norm(x - 1)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--generations", type=int, default=150)
    p.add_argument("--population", type=int, default=12)
    p.add_argument("--dim", type=int, default=200)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    rng = np.random.default_rng(0)
    mean = np.zeros(args.dim)
    with tempfile.TemporaryDirectory(prefix="evolve-") as logdir:
        for gen in range(args.generations):
            population = mean + rng.normal(scale=0.3, size=(args.population, args.dim))
            fitness = []
            for k, genome in enumerate(population):
                writer = EventWriter(logdir, f"gen{gen:03d}-{k:02d}")
                fitness.append(evaluate(genome, writer, rng))
                writer.close()
            best = np.argsort(fitness)[-4:]
            mean = population[best].mean(0)
            log.info("generation %d best %.4f", gen, max(fitness))


if __name__ == "__main__":
    main()
