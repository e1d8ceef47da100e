"""Individuals of the neuro-evolution run: flat weight vectors of a small controller."""
import dataclasses
from typing import Optional, Tuple

import numpy as np

LAYERS = ((24, 128), (128, 128), (128, 6))
GENOME_SIZE = sum(i * o + o for i, o in LAYERS)


@dataclasses.dataclass
class Individual:
    genome: np.ndarray
    generation: int
    parents: Optional[Tuple[int, int]] = None
    fitness: Optional[float] = None


def random_individual(rng):
    return Individual(rng.normal(0, 0.2, GENOME_SIZE).astype(np.float32), generation=0)


def crossover(a, b, rng, generation, sigma):
    mask = rng.random(GENOME_SIZE) < 0.5
    child = np.where(mask, a.genome, b.genome)
    child = child + rng.normal(0, sigma, GENOME_SIZE).astype(np.float32)
    return Individual(child.astype(np.float32), generation)


def forward(genome, x):
    offset = 0
    for n, (i, o) in enumerate(LAYERS):
        w = genome[offset:offset + i * o].reshape(i, o)
        offset += i * o
        b = genome[offset:offset + o]
        offset += o
        x = x @ w + b
        if n < len(LAYERS) - 1:
            x = np.tanh(x)
    return x
