"""Brownian dynamics in a double well; every trajectory goes into a file of its own."""
import os
import time

import numpy as np


def simulate(worker, out_dir, files, frames, dim, interval, seed):
    rng = np.random.default_rng(seed + worker)
    number = 0
    while True:
        t0 = time.monotonic()
        x = np.zeros(dim)
        noise = rng.normal(scale=0.3, size=(frames, dim))
        traj = np.empty((frames, dim), np.float32)
        for t in range(frames):
            x = x - 0.05 * (4 * x ** 3 - 4 * x) + noise[t]
            traj[t] = x = np.clip(x, -3, 3)
        path = os.path.join(out_dir, f"traj_{worker}_{number:06d}.npy")
        np.save(path, traj)
        files.put(path)
        number += 1
        time.sleep(max(0.0, interval - (time.monotonic() - t0)))
