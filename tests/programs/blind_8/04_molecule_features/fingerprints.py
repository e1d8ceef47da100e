import time

import numpy as np


def _adjacency(seed, atoms):
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.random((atoms, atoms)) < 0.1, 1)
    return (upper | upper.T).astype(np.float64)


def describe(seed, atoms, radius=6):
    adj = _adjacency(seed, atoms)
    lap = np.diag(adj.sum(axis=1)) - adj
    values = np.linalg.eigvalsh(lap)
    walks = np.eye(atoms)
    counts = []
    for _ in range(radius):
        walks = walks @ adj
        counts.append(np.trace(walks))
    time.sleep(0.2)
    return np.array([values[1], values[-1], values.mean(), *counts])
