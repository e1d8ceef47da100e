"""A managed pool: arrays travel through shared memory instead of the pipe."""
import numpy as np
import torch
import torch.multiprocessing as mp


def delayed(function):
    def wrap(*args):
        return function, args
    return wrap


def _call(task):
    function, args = task
    return function(*[a.numpy() if isinstance(a, torch.Tensor) else a for a in args])


class SharedArrays:
    """Hands out one shared copy per array, however often the array is passed."""

    def __init__(self, min_bytes=1 << 20):
        self.min_bytes = min_bytes
        self._by_array = {}

    def reduce(self, value):
        if not isinstance(value, np.ndarray) or value.nbytes < self.min_bytes:
            return value
        entry = self._by_array.get(id(value))
        if entry is None or entry[0] is not value:
            shared = torch.from_numpy(np.ascontiguousarray(value)).clone().share_memory_()
            entry = self._by_array[id(value)] = (value, shared)
        return entry[1]

    def clear(self):
        self._by_array.clear()


class Parallel:
    def __init__(self, n_jobs):
        self.n_jobs = n_jobs
        self.arrays = SharedArrays()

    def __enter__(self):
        torch.set_num_threads(1)
        self.pool = mp.get_context("fork").Pool(self.n_jobs)
        return self

    def __exit__(self, *exc):
        self.pool.terminate()
        self.pool.join()
        self.arrays.clear()

    def __call__(self, tasks):
        prepared = [(f, tuple(self.arrays.reduce(a) for a in args)) for f, args in tasks]
        return self.pool.map(_call, prepared, chunksize=1)
