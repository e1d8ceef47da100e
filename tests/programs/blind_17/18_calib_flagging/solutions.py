"""Gain solutions on disk, one file for the values and one for the weights."""
import pathlib
import time

import numpy as np

STATIONS = [f"CS{n:03d}HBA" for n in (1, 2, 3, 4, 5, 6, 7, 11, 13, 17, 21, 24, 26, 28, 30, 31, 32)] + \
           [f"RS{n:03d}HBA" for n in (106, 205, 208, 305, 306, 310)]

OUTAGES = [("CS003HBA", 0, 0, 0.03), ("CS003HBA", 0, 1, 0.03), ("CS011HBA", 1, 1, 0.12), ("CS024HBA", 2, 0, 0.02),
           ("RS208HBA", 1, 0, 0.04), ("RS208HBA", 1, 1, 0.04)]


class SolutionStore:
    """Amplitudes of shape (antenna, direction, polarisation, time), opened anew for each access."""

    def __init__(self, folder, n_dir, n_time, latency):
        self.folder = pathlib.Path(folder)
        self.shape = (len(STATIONS), n_dir, 2, n_time)
        self.latency = latency

    def open(self, name, mode="r+"):
        return np.memmap(self.folder / f"{name}.dat", np.float64, mode, shape=self.shape)

    def create(self, seed):
        rng = np.random.default_rng(seed)
        values = 1.0 + np.cumsum(rng.normal(0, 0.01, self.shape), axis=-1) + rng.normal(0, 0.02, self.shape)
        spikes = rng.random(self.shape) < 0.01
        values[spikes] += rng.normal(0, 2.0, int(spikes.sum()))
        weights = np.ones(self.shape)
        n_time = self.shape[-1]
        for antenna, direction, pol, share in OUTAGES:
            length = int(share * n_time)
            begin = int(rng.integers(0, n_time - length))
            weights[STATIONS.index(antenna), direction, pol, begin:begin + length] = 0
        self.open("values", "w+")[:] = values
        self.open("weights", "w+")[:] = weights

    def read(self, coord):
        time.sleep(self.latency)
        return np.array(self.open("values", "r")[coord]), np.array(self.open("weights", "r")[coord])

    def write_weights(self, coord, weights):
        target = self.open("weights")
        target[coord] = weights
        target.flush()

    def flagged_share(self):
        return 1.0 - float(self.open("weights", "r").mean())

    def selections(self):
        return np.ndindex(*self.shape[:-1])
