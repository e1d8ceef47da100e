import time

import numpy as np


def associate(day, n_picks=1200):
    """Group the picks of a day into events with a small Gaussian mixture."""
    rng = np.random.default_rng(day)
    centres = rng.uniform(0, 86400, 12)
    picks = centres[rng.integers(12, size=n_picks)] + rng.normal(0, 30, n_picks)
    scratch = np.ones((8_000_000,))  # travel time table
    mu = rng.uniform(0, 86400, 12)
    for _ in range(30):
        d = np.abs(picks[:, None] - mu[None])
        assign = d.argmin(1)
        for k in range(12):
            if (assign == k).any():
                mu[k] = picks[assign == k].mean()
    time.sleep(0.4)
    return day, len(set(assign.tolist())), float(scratch[:10].sum())
