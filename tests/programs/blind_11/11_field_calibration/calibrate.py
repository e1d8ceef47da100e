import logging
import time

import numpy as np

log = logging.getLogger("calibration")


class FieldModel:
    """Misfit of simulated sensor readings on a dense background field."""

    def __init__(self, cells, sensors, seed=3):
        rng = np.random.default_rng(seed)
        self.field = rng.random(cells)
        self.gradient = np.gradient(self.field)
        self.sensors = rng.integers(0, cells, size=sensors)
        self.readings = 1.3 * self.field[self.sensors] + 0.2 * self.gradient[self.sensors]

    def misfit(self, params):
        scale, drift = params
        simulated = scale * self.field[self.sensors] + drift * self.gradient[self.sensors]
        residual = simulated - self.readings
        return float(residual @ residual)


class Calibrator:
    def __init__(self, model, pool, population, seed=5):
        self.model = model
        self.pool = pool
        self.rng = np.random.default_rng(seed)
        self.population = population
        self.mean = np.array([0.0, 0.0])
        self.sigma = 1.0

    def generation(self):
        candidates = self.mean + self.sigma * self.rng.normal(size=(self.population, 2))
        if self.pool is None:
            scores = [self.model.misfit(c) for c in candidates]
        else:
            scores = self.pool.map(self.model.misfit, candidates, chunksize=1)
        order = np.argsort(scores)[: self.population // 3]
        self.mean = candidates[order].mean(axis=0)
        self.sigma = max(0.02, 0.99 * self.sigma)
        return min(scores)

    def run(self, generations, label):
        shown = time.perf_counter()
        count = 0
        for n in range(generations):
            best = self.generation()
            count += 1
            now = time.perf_counter()
            if now - shown > 1.0:
                log.info("%s generation %d: best %.4f at %s, %.1f generations/s", label, n, best,
                         np.round(self.mean, 3), count / (now - shown))
                shown, count = now, 0
