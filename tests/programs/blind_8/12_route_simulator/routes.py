import multiprocessing as mp

import numpy as np


def build_distances(stops, seed=6):
    points = np.random.default_rng(seed).random((stops, 2)) * 100
    diff = points[:, None] - points[None]
    return np.sqrt((diff**2).sum(-1)).ravel().tolist()


class RouteWorker(mp.Process):
    def __init__(self, index, distances, stops, results):
        super().__init__(name=f"route-{index}", daemon=True)
        self.index = index
        self.distances = distances
        self.stops = stops
        self.results = results

    def length(self, order):
        total = 0.0
        for a, b in zip(order, order[1:]):
            total += self.distances[a * self.stops + b]
        return total

    def improve(self, order, rng, tries=30):
        best = self.length(order)
        for _ in range(tries):
            i, j = sorted(rng.integers(1, self.stops, 2))
            candidate = order[:i] + order[i:j][::-1] + order[j:]
            length = self.length(candidate)
            if length < best:
                order, best = candidate, length
        return best

    def run(self):
        rng = np.random.default_rng(self.index)
        while True:
            order = rng.permutation(self.stops).tolist()
            self.results.put(self.improve(order, rng))
