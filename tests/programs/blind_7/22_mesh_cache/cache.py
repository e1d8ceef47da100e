"""Preprocessed meshes on disk, built once by whoever comes first."""
import logging
import os
import time
from pathlib import Path

import numpy as np

log = logging.getLogger(__name__)


class FileBaton:
    """The holder creates the file; everybody else waits until it has gone."""

    def __init__(self, path: Path, poll=0.2):
        self.path = path
        self.poll = poll
        self.fd = None

    def try_acquire(self):
        try:
            self.fd = os.open(self.path, os.O_CREAT | os.O_EXCL)
            return True
        except FileExistsError:
            return False

    def wait(self):
        while self.path.exists():
            time.sleep(self.poll)

    def release(self):
        os.close(self.fd)
        self.path.unlink()


def laplacian_features(rng, vertices, hops):
    """Smoothed coordinates of a random neighbour graph."""
    x = rng.standard_normal((vertices, 3)).astype(np.float32)
    nbr = rng.integers(0, vertices, (vertices, 8))
    out = [x]
    for _ in range(hops):
        x = 0.5 * x + 0.5 * x[nbr].mean(1)
        out.append(x)
    return np.concatenate(out, 1)


class MeshCache:
    def __init__(self, folder: Path, meshes, vertices=40_000, hops=12):
        self.folder = folder
        self.meshes, self.vertices, self.hops = meshes, vertices, hops
        folder.mkdir(parents=True, exist_ok=True)

    def _ready(self):
        return (self.folder / "DONE").exists()

    def _build(self):
        t0 = time.time()
        for k in range(self.meshes):
            feats = laplacian_features(np.random.default_rng(k), self.vertices, self.hops)
            np.save(self.folder / f"mesh{k:04d}.npy", feats.astype(np.float16))
        (self.folder / "DONE").touch()
        log.info("built %d meshes in %.1f s", self.meshes, time.time() - t0)

    def ensure(self):
        """Returns once all meshes are there."""
        while not self._ready():
            baton = FileBaton(self.folder / "lock")
            if baton.try_acquire():
                try:
                    self._build()
                finally:
                    baton.release()
            else:
                baton.wait()

    def load(self, k):
        return np.load(self.folder / f"mesh{k:04d}.npy").astype(np.float32)
