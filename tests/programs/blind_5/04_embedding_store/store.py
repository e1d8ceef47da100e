import logging
import threading
import time

import numpy as np

log = logging.getLogger("store")


class EmbeddingStore:
    """Item embeddings kept fresh from the feature service."""

    def __init__(self, n_items, dim, shards=16, page_seconds=0.25):
        self.n_items, self.dim, self.shards = n_items, dim, shards
        self.page_seconds = page_seconds
        self._table = np.zeros((n_items, dim), dtype=np.float32)
        self._lock = threading.Lock()
        self._version = 0
        self._rng = np.random.default_rng(0)
        self._thread = threading.Thread(target=self._refresh_forever, daemon=True, name="refresh")

    def start(self):
        self._thread.start()
        return self

    def _fetch_page(self, shard):
        time.sleep(self.page_seconds)
        rows = np.arange(shard, self.n_items, self.shards)
        return rows, self._rng.normal(size=(len(rows), self.dim))

    def _refresh_forever(self):
        while True:
            with self._lock:
                for shard in range(self.shards):
                    rows, values = self._fetch_page(shard)
                    self._table[rows] = values
                self._version += 1
            log.info("embeddings at version %d", self._version)
            time.sleep(0.5)

    def lookup(self, idx):
        with self._lock:
            return self._table[idx].copy()
