"""Read-only chunk stores for patch archives."""
import json
import logging
import zipfile
import zlib
from collections.abc import Mapping

import numpy as np

log = logging.getLogger("store")


class ZipStore(Mapping):
    """Mapping view (chunk key -> raw bytes) over a zip archive.

    The object carries only the path, so it can be pickled and handed to
    loader workers.
    """

    def __init__(self, path):
        self.path = str(path)

    def __getitem__(self, key):
        with zipfile.ZipFile(self.path, mode="r") as zf:
            try:
                return zf.read(key)
            except KeyError:
                raise KeyError(key) from None

    def __iter__(self):
        with zipfile.ZipFile(self.path, mode="r") as zf:
            yield from zf.namelist()

    def __len__(self):
        with zipfile.ZipFile(self.path, mode="r") as zf:
            return len(zf.infolist())


class ChunkedArray:
    """N patches, one compressed chunk each, addressed by their first axis."""

    def __init__(self, store, prefix="patches"):
        self.store = store
        self.prefix = prefix
        meta = json.loads(store[f"{prefix}/.zarray"])
        self.shape = tuple(meta["shape"])
        self.dtype = np.dtype(meta["dtype"])

    def __len__(self):
        return self.shape[0]

    def __getitem__(self, index):
        raw = zlib.decompress(self.store[f"{self.prefix}/{index}.0.0"])
        return np.frombuffer(raw, dtype=self.dtype).reshape(self.shape[1:])


def write_archive(path, count, side, seed=0, prefix="patches"):
    """Write `count` synthetic patches; they share 64 distinct textures."""
    rng = np.random.default_rng(seed)
    textures = []
    for _ in range(64):
        coarse = rng.integers(0, 255, size=(side // 8, side // 8), dtype=np.uint8)
        textures.append(zlib.compress(np.kron(coarse, np.ones((8, 8), np.uint8)).tobytes()))
    meta = {"shape": [count, side, side], "dtype": "uint8", "chunks": [1, side, side]}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as zf:
        zf.writestr(f"{prefix}/.zarray", json.dumps(meta))
        for i in range(count):
            zf.writestr(f"{prefix}/{i}.0.0", textures[i % len(textures)])
    log.info("wrote %d chunks to %s", count, path)
