import logging
import time

import numpy as np

log = logging.getLogger("features.store")


class FeatureStore:
    """Feature table on disk; readers map it, the curator keeps it clean."""

    def __init__(self, path, dim=256):
        self.path = path
        self.dim = dim

    def create(self, rows, seed=0):
        rng = np.random.default_rng(seed)
        table = rng.standard_normal((rows, self.dim), dtype=np.float32)
        table[rows // 3:] = table[: rows - rows // 3]
        np.save(self.path, table)
        log.info("%d rows in %s", rows, self.path)

    def open(self):
        return np.load(self.path, mmap_mode="r")

    def drop_duplicates(self):
        table = np.load(self.path)
        _, first = np.unique(table[:, :4].copy().view("V16").ravel(), return_index=True)
        kept = table[np.sort(first)]
        np.save(self.path, kept)
        log.info("kept %d of %d rows", len(kept), len(table))


def curator_main(store, every):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    while True:
        time.sleep(every)
        store.drop_duplicates()
