"""Evolve pole balancing controllers with a pool of evaluation processes."""
import argparse
import logging
import multiprocessing as mp
import random
import statistics
import time

from controller import GENES, evaluate, random_genome, stabilising_genome

log = logging.getLogger("evolve")


class Individual:
    def __init__(self, genome, origin):
        self.genome = genome
        self.origin = origin
        self.fitness = 0.0


class Evolution:
    def __init__(self, args):
        self.args = args
        self.rng = random.Random(args.seed)
        self.generation = 0
        elites = [Individual(stabilising_genome(self.rng), "hall-of-fame") for _ in range(args.elites)]
        fresh = [Individual(random_genome(self.rng), "random") for _ in range(args.population - args.elites)]
        self.population = elites + fresh

    def crossover(self, a, b):
        cut = self.rng.randrange(GENES)
        return a.genome[:cut] + b.genome[cut:]

    def mutate(self, genome):
        return [g + self.rng.gauss(0, self.args.sigma) if self.rng.random() < self.args.p_mutation else g
                for g in genome]

    def select(self):
        group = self.rng.sample(self.population, self.args.tournament)
        return max(group, key=lambda ind: ind.fitness)

    def evaluate_population(self, pool):
        seed = self.generation * 1000
        jobs = [(ind.genome, seed, self.args.episodes, self.args.max_steps) for ind in self.population]
        for ind, fitness in zip(self.population, pool.map(evaluate, jobs)):
            ind.fitness = fitness

    def breed(self):
        self.population.sort(key=lambda ind: ind.fitness, reverse=True)
        survivors = self.population[: self.args.elites]
        children = []
        while len(children) < self.args.population - self.args.elites:
            if self.rng.random() < self.args.immigrants:
                children.append(Individual(random_genome(self.rng), "random"))
            else:
                genome = self.mutate(self.crossover(self.select(), self.select()))
                children.append(Individual(genome, "offspring"))
        self.population = survivors + children

    def run(self, pool):
        start = time.monotonic()
        while time.monotonic() - start < self.args.max_seconds:
            begin = time.monotonic()
            self.evaluate_population(pool)
            took = time.monotonic() - begin
            fits = [ind.fitness for ind in self.population]
            log.info("generation %d: best %.0f median %.0f, evaluation %.1f s", self.generation, max(fits),
                     statistics.median(fits), took)
            self.breed()
            self.generation += 1
        log.info("stopped after %d generations", self.generation)


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--population", type=int, default=60)
    p.add_argument("--elites", type=int, default=5)
    p.add_argument("--processes", type=int, default=3)
    p.add_argument("--episodes", type=int, default=6)
    p.add_argument("--max-steps", type=int, default=100_000)
    p.add_argument("--tournament", type=int, default=3)
    p.add_argument("--sigma", type=float, default=6.0)
    p.add_argument("--p-mutation", type=float, default=0.6)
    p.add_argument("--immigrants", type=float, default=0.85)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--max-seconds", type=float, default=105)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    with mp.get_context("spawn").Pool(args.processes) as pool:
        Evolution(args).run(pool)


if __name__ == "__main__":
    main()
