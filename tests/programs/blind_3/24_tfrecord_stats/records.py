import os
import struct

import numpy as np
from torch.utils.data import IterableDataset


def write_shard(path, first, count):
    rng = np.random.default_rng(first)
    with open(path, "wb") as f:
        for i in range(first, first + count):
            payload = struct.pack("<q", i) + rng.normal(size=8).astype("<f4").tobytes()
            f.write(struct.pack("<I", len(payload)) + payload)


class RecordDataset(IterableDataset):
    def __init__(self, folder):
        self.paths = sorted(os.path.join(folder, p) for p in os.listdir(folder))

    def _records(self, path):
        with open(path, "rb") as f:
            while head := f.read(4):
                payload = f.read(struct.unpack("<I", head)[0])
                key = struct.unpack("<q", payload[:8])[0]
                yield key, np.frombuffer(payload[8:], dtype="<f4").copy()

    def __iter__(self):
        for path in self.paths:
            yield from self._records(path)
