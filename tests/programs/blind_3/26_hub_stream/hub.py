import logging
import random
import time

import numpy as np

log = logging.getLogger("hub")


class GatewayTimeout(Exception):
    pass


class HubClient:
    """Range reads on a rate-limited gateway."""

    def __init__(self, seed, timeout_rate=0.35):
        self.rng = random.Random(seed)
        self.timeout_rate = timeout_rate

    def _request(self, shard):
        time.sleep(0.1)
        if self.rng.random() < self.timeout_rate:
            raise GatewayTimeout(f"504 for shard {shard}")
        return np.random.default_rng(shard).normal(size=(256, 16)).astype(np.float32)

    def fetch(self, shard, retries=8):
        delay = 0.3
        for attempt in range(retries):
            try:
                return self._request(shard)
            except GatewayTimeout as err:
                log.warning("%s, retry %d/%d in %.1fs", err, attempt + 1, retries, delay)
                time.sleep(delay)
                delay = min(delay * 2, 3.0)
        raise RuntimeError(f"shard {shard} not available")
