"""Fixed-size token records in a gzip file."""
import gzip

import numpy as np
import torch
from torch.utils.data import Dataset

TOKENS = 4096
RECORD_BYTES = TOKENS * 2


def build_shard(path, records, seed=0):
    rng = np.random.default_rng(seed)
    phrases = rng.integers(0, 512, size=(64, 256), dtype=np.uint16)
    with gzip.open(path, "wb", compresslevel=1) as f:
        for _ in range(records):
            pick = rng.integers(0, len(phrases), size=TOKENS // 256)
            f.write(phrases[pick].tobytes())


def scan_shard(path):
    count = 0
    with gzip.open(path, "rb") as f:
        while f.read(RECORD_BYTES):
            count += 1
    return count


class CompressedShard(Dataset):
    def __init__(self, path, count):
        self.path = path
        self.count = count
        self._file = None

    def __len__(self):
        return self.count

    def _handle(self):
        if self._file is None:
            self._file = gzip.open(self.path, "rb")
        return self._file

    def __getitem__(self, index):
        f = self._handle()
        f.seek(index * RECORD_BYTES)
        raw = f.read(RECORD_BYTES)
        return torch.from_numpy(np.frombuffer(raw, dtype=np.uint16).astype(np.int64))
