"""Asynchronous writer of scalars and histograms (JSON lines)."""
import json
import logging
import queue
import threading
import time
from pathlib import Path

import numpy as np

log = logging.getLogger(__name__)


class EventWriter:
    """The training loop only enqueues; a thread does the binning and the writing."""

    def __init__(self, path: Path, max_queue=20, flush_secs=2.0):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.file = path.open("w")
        self.queue = queue.Queue(max_queue)
        self.flush_secs = flush_secs
        self.thread = threading.Thread(target=self._run, name="event-writer", daemon=True)
        self.thread.start()

    def add_scalar(self, tag, value, step):
        self.queue.put(("scalar", tag, float(value), step))

    def add_histogram(self, tag, values, step):
        self.queue.put(("hist", tag, np.asarray(values).ravel().copy(), step))

    def _encode(self, kind, tag, value, step):
        if kind == "hist":
            counts, edges = np.histogram(value, bins=30)
            value = {"counts": counts.tolist(), "edges": edges.tolist()}
        return json.dumps({"kind": kind, "tag": tag, "step": step, "value": value})

    def _run(self):
        next_flush = time.monotonic() + self.flush_secs
        while True:
            event = self.queue.get()
            if event is None:
                break
            self.file.write(self._encode(*event) + "\n")
            if time.monotonic() > next_flush:
                self.file.flush()
                next_flush = time.monotonic() + self.flush_secs

    def close(self):
        self.queue.put(None)
        self.thread.join()
        self.file.close()
