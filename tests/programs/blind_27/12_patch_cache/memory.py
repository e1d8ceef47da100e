"""Disk cache for the results of pure functions, in the manner of joblib.Memory."""
import hashlib
import inspect
import os
import pickle

import numpy as np


class Hasher:
    def __init__(self):
        self._md5 = hashlib.md5()

    def update(self, obj):
        if isinstance(obj, np.ndarray):
            self._md5.update(repr((obj.dtype.str, obj.shape)).encode())
            self._md5.update(np.ascontiguousarray(obj).data.cast("B"))
        else:
            self._md5.update(pickle.dumps(obj))

    def hexdigest(self):
        return self._md5.hexdigest()


class CachedFunction:
    def __init__(self, func, folder):
        self.func = func
        self.folder = os.path.join(folder, func.__name__)
        self.signature = inspect.signature(func)
        os.makedirs(self.folder, exist_ok=True)

    def _key(self, args, kwargs):
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        hasher = Hasher()
        for name, value in bound.arguments.items():
            hasher.update(name)
            hasher.update(value)
        return hasher.hexdigest()

    def __call__(self, *args, **kwargs):
        path = os.path.join(self.folder, self._key(args, kwargs) + ".npy")
        if os.path.exists(path):
            return np.load(path)
        result = self.func(*args, **kwargs)
        tmp = f"{path}.{os.getpid()}.tmp"
        with open(tmp, "wb") as fh:
            np.save(fh, result)
        os.replace(tmp, path)
        return result


class Memory:
    def __init__(self, folder):
        self.folder = folder

    def cache(self, func):
        return CachedFunction(func, self.folder)
