"""FASTQ access by read number, with an offset index next to the compressed file."""
import gzip
import os

import numpy as np
import torch
from torch.utils.data import Dataset

BASES = np.frombuffer(b"ACGT", dtype=np.uint8)
CODE = np.full(256, 4, dtype=np.int64)
CODE[BASES] = np.arange(4)


def simulate_lane(path, reads, length, seed):
    """Write ``reads`` reads to ``path`` and their offsets to ``path + '.idx.npy'``."""
    rng = np.random.default_rng(seed)
    genome = BASES[rng.integers(0, 4, 50_000)]
    offsets = np.empty(reads, dtype=np.int64)
    position = 0
    with gzip.open(path, "wb", compresslevel=1) as out:
        starts = rng.integers(0, len(genome) - length, reads)
        for i, start in enumerate(starts):
            seq = genome[start:start + length].tobytes()
            record = b"@lane1:%d:%d\n%s\n+\n%s\n" % (i, start, seq, b"I" * length)
            offsets[i] = position
            position += len(record)
            out.write(record)
    np.save(path + ".idx.npy", offsets)
    return position


class FastqReads(Dataset):
    def __init__(self, path, length):
        self.path = path
        self.length = length
        self.offsets = np.load(path + ".idx.npy")
        self._file = None

    def __len__(self):
        return len(self.offsets)

    def _handle(self):
        if self._file is None:
            self._file = gzip.open(self.path, "rb")
        return self._file

    def __getitem__(self, i):
        fh = self._handle()
        fh.seek(int(self.offsets[i]))
        header = fh.readline()
        seq = fh.readline().rstrip()
        start = int(header.rsplit(b":", 1)[1])
        tokens = CODE[np.frombuffer(seq, dtype=np.uint8)]
        return torch.from_numpy(tokens), start / 50_000

    @property
    def name(self):
        return os.path.basename(self.path)
