"""Scratch space of a job: prepared shards live here while the job runs."""
import atexit
import logging
import os
import shutil
import tempfile

import numpy as np

log = logging.getLogger("scratch")


class Scratch:
    def __init__(self):
        self.path = tempfile.mkdtemp(prefix="streams-")
        atexit.register(self.remove)

    def remove(self):
        shutil.rmtree(self.path, ignore_errors=True)

    def file(self, name):
        return os.path.join(self.path, name)

    def prepare(self, streams, shards, rows, features, seed):
        rng = np.random.default_rng(seed)
        truth = rng.standard_normal(features).astype(np.float32)
        for stream in streams:
            for i in range(shards):
                x = rng.standard_normal((rows, features)).astype(np.float32)
                y = np.tanh(x @ truth) + 0.1 * rng.standard_normal(rows).astype(np.float32)
                np.save(self.file(f"{stream}-{i:03d}.npy"), np.column_stack([x, y]).astype(np.float32))
        log.info("prepared %d shards in %s", len(streams) * shards, self.path)
