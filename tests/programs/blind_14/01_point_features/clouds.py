"""Point clouds on disk: one .npz per scan, written by the scanner export."""
import os

import numpy as np


def export_scans(root, count, seed):
    """Write the demo scans, sorted by the number of points as the exporter does."""
    os.makedirs(root, exist_ok=True)
    rng = np.random.default_rng(seed)
    sizes = np.sort(np.concatenate([
        rng.integers(40, 90, size=count // 2),
        rng.integers(250, 420, size=count - count // 2),
    ]))
    paths = []
    for i, n in enumerate(sizes):
        path = os.path.join(root, f"scan_{i:04d}.npz")
        np.savez(path, xyz=rng.normal(size=(int(n), 3)).astype(np.float32))
        paths.append(path)
    return paths


def read_scan(path):
    with np.load(path) as data:
        return data["xyz"]
