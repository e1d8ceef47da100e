import logging
import multiprocessing as mp
import time

import numpy as np

from genome import Individual, crossover, forward, random_individual

log = logging.getLogger("evolution")

_task = None


def init_worker(seed):
    global _task
    rng = np.random.default_rng(seed)
    states = rng.normal(size=(128, 24)).astype(np.float32)
    mixing = rng.normal(size=(24, 6)).astype(np.float32) / 5
    _task = (states, np.sin(states @ mixing))


def evaluate(genome):
    states, target = _task
    return -float(np.mean((forward(genome, states) - target) ** 2))


class Evolution:
    """Generational search with tournament selection and a few elites."""

    def __init__(self, args):
        self.args = args
        self.rng = np.random.default_rng(args.seed)
        self.pool = mp.get_context("fork").Pool(args.workers, initializer=init_worker, initargs=(17,))
        self._generations = []
        self.run_details = {"generation": [], "best": [], "mean": [], "seconds": []}

    def fit(self, deadline):
        population = [random_individual(self.rng) for _ in range(self.args.population)]
        for gen in range(self.args.generations):
            started = time.time()
            self.evaluate(population)
            self._generations.append(population)
            self.report(gen, population, started)
            if time.time() > deadline:
                break
            population = self.breed(gen + 1)
        self.pool.close()
        self.pool.join()
        return max(self._generations[-1], key=lambda ind: ind.fitness)

    def evaluate(self, population):
        pending = [ind for ind in population if ind.fitness is None]
        fitness = self.pool.map(evaluate, [ind.genome for ind in pending], chunksize=4)
        for ind, value in zip(pending, fitness):
            ind.fitness = value

    def breed(self, generation):
        parents = self._generations[-1]
        order = sorted(range(len(parents)), key=lambda i: parents[i].fitness, reverse=True)
        children = [Individual(parents[i].genome, generation, (i, i), parents[i].fitness)
                    for i in order[:self.args.elites]]
        while len(children) < self.args.population:
            i, j = self.tournament(parents), self.tournament(parents)
            child = crossover(parents[i], parents[j], self.rng, generation, self.args.sigma)
            child.parents = (i, j)
            children.append(child)
        return children

    def tournament(self, parents):
        picks = self.rng.integers(0, len(parents), self.args.tournament)
        return int(max(picks, key=lambda i: parents[i].fitness))

    def report(self, gen, population, started):
        values = [ind.fitness for ind in population]
        elapsed = time.time() - started
        for key, value in (("generation", gen), ("best", max(values)), ("mean", float(np.mean(values))),
                           ("seconds", elapsed)):
            self.run_details[key].append(value)
        if gen % 10 == 0:
            log.info("generation %4d best %.5f mean %.5f (%.2f s)", gen, max(values),
                     float(np.mean(values)), elapsed)
        if elapsed < self.args.min_seconds:
            time.sleep(self.args.min_seconds - elapsed)
