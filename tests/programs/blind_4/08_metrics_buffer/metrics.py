"""Buffered metrics: values are kept compressed in memory and written out once per period."""
import json
import os
import signal
import threading
import time
import zlib

import numpy as np


class MetricsBuffer:
    def __init__(self, path, period):
        self.path = path
        self.period = period
        self._lock = threading.Lock()
        self._records = []
        self.flushed = 0

    def install(self):
        signal.signal(signal.SIGALRM, self._on_alarm)
        signal.setitimer(signal.ITIMER_REAL, self.period, self.period)

    def _on_alarm(self, signum, frame):
        self.flush()

    def append(self, step, name, values):
        with self._lock:
            counts, edges = np.histogram(values, bins=512)
            record = {"step": step, "name": name, "t": time.time(),
                      "counts": counts.tolist(), "edges": edges.tolist()}
            self._records.append(zlib.compress(json.dumps(record).encode(), 9))

    def flush(self):
        with self._lock:
            records, self._records = self._records, []
        with open(self.path, "ab") as fh:
            for r in records:
                fh.write(len(r).to_bytes(4, "big") + r)
            fh.flush()
            os.fsync(fh.fileno())
        self.flushed += len(records)
