import time

import numpy as np


def generate(seed, size, out):
    """Particle image pairs; blocks while the consumer has enough of them."""
    rng = np.random.default_rng(seed)
    count = 0
    while True:
        first = np.zeros((size, size), dtype=np.float32)
        pts = rng.integers(4, size - 4, (400, 2))
        first[pts[:, 0], pts[:, 1]] = 1.0
        shift = rng.integers(-3, 4, 2)
        out.put((np.stack([first, np.roll(first, shift, (0, 1))]), shift))
        count += 1
        time.sleep(0.002)
