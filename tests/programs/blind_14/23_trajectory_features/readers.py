"""Readers for trajectory files."""
import numpy as np


class NumPyFileReader:
    """Reads slices of a .npy file without loading all of it."""

    def __init__(self, filename):
        self.filename = filename
        self.array = np.load(filename, mmap_mode="r")
        if self.array.ndim != 2:
            raise ValueError(f"{filename}: expected frames x dim, got {self.array.shape}")
        self.n_frames, self.dim = self.array.shape

    def chunks(self, chunksize):
        for start in range(0, self.n_frames, chunksize):
            yield np.asarray(self.array[start:start + chunksize])


class FeatureSource:
    """All trajectories of a project, in the order in which they arrived."""

    def __init__(self, chunksize):
        self.chunksize = chunksize
        self.readers = []

    def add(self, filename):
        reader = NumPyFileReader(filename)
        self.readers.append(reader)
        return reader

    @property
    def n_frames_total(self):
        return sum(r.n_frames for r in self.readers)
