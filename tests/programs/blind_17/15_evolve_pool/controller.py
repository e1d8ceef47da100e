"""Balancing task and the small network whose weights are evolved."""
import math
import random

HIDDEN = 4
GENES = HIDDEN * 4 + HIDDEN


def random_genome(rng, scale=2.0):
    return [rng.gauss(0, scale) for _ in range(GENES)]


def stabilising_genome(rng):
    """A genome in the neighbourhood of last week's champion."""
    base = [0.0] * GENES
    base[0:4] = [0.30, 0.60, 2.2, 0.9]
    base[GENES - HIDDEN] = 5.0
    return [g + rng.gauss(0, 0.01) for g in base]


def act(genome, state):
    force = 0.0
    for h in range(HIDDEN):
        s = 0.0
        for j in range(4):
            s += genome[h * 4 + j] * state[j]
        force += genome[GENES - HIDDEN + h] * math.tanh(s)
    return max(-10.0, min(10.0, 10.0 * force))


def balance(genome, seed, max_steps):
    """Number of time steps the pole stays up, as in the classic cart-pole task."""
    rng = random.Random(seed)
    x, v, th, w = (rng.uniform(-0.05, 0.05) for _ in range(4))
    for t in range(max_steps):
        f = act(genome, (x, v, th, w)) + rng.gauss(0, 4.0)
        c, s = math.cos(th), math.sin(th)
        tmp = (f + 0.05 * w * w * s) / 1.1
        wa = (9.8 * s - c * tmp) / (0.5 * (4.0 / 3.0 - 0.1 * c * c / 1.1))
        va = tmp - 0.05 * wa * c / 1.1
        x, v, th, w = x + 0.02 * v, v + 0.02 * va, th + 0.02 * w, w + 0.02 * wa
        if abs(x) > 2.4 or abs(th) > 0.21:
            return t + 1
    return max_steps


def evaluate(job):
    genome, seed, episodes, max_steps = job
    return sum(balance(genome, seed + k, max_steps) for k in range(episodes)) / episodes
