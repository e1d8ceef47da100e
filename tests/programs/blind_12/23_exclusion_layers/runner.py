"""Runs all regulations and merges their layers into one exclusion map."""
import logging
import time
from concurrent.futures import ProcessPoolExecutor, as_completed

import numpy as np

from layers import GRID, local_exclusion

log = logging.getLogger("exclusions")


class ExclusionMerger:
    """Keeps the merged map and the overlap statistics that the report needs."""

    def __init__(self, grid=GRID):
        self.merged = np.zeros(grid, dtype=np.float32)
        self.overlap = np.zeros(grid, dtype=np.int32)

    def merge(self, layer):
        self.overlap += layer > 0
        np.maximum(self.merged, layer, out=self.merged)
        smooth = np.fft.irfft2(np.fft.rfft2(self.merged) * self._kernel(), s=layer.shape)
        return float((self.merged > 0).mean()), float(smooth.max())

    def _kernel(self):
        fy = np.fft.fftfreq(self.merged.shape[0])[:, None]
        fx = np.fft.rfftfreq(self.merged.shape[1])[None, :]
        return np.exp(-200 * (fx ** 2 + fy ** 2))


class ExclusionRunner:
    def __init__(self, regulations, max_workers):
        self.regulations = regulations
        self.max_workers = max_workers
        self.merger = ExclusionMerger()
        self.upload_latency = 0.15
        self.history = []

    def publish(self, excluded):
        """Stands for the status upload to the project server."""
        self.history.append(excluded)
        time.sleep(self.upload_latency)

    def run(self):
        started = time.perf_counter()
        with ProcessPoolExecutor(max_workers=self.max_workers) as exe:
            futures = {exe.submit(local_exclusion, reg): reg["fips"] for reg in self.regulations}
            for i, future in enumerate(as_completed(futures), 1):
                excluded, peak = self.merger.merge(future.result())
                self.publish(excluded)
                if i % 20 == 0:
                    log.info("merged %d/%d (%s), %.1f%% excluded, peak %.2f, %.1f s", i, len(futures),
                             futures[future], 100 * excluded, peak, time.perf_counter() - started)
        return self.merger.merged
