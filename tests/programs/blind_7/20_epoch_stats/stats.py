"""Counters of a run, written to a JSON file in the background."""
import json
import threading
import time
from pathlib import Path


class RunStats:
    def __init__(self, path: Path, every=0.25):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.every = every
        self.counts = {}
        self.history = []
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._write_loop, name="stats", daemon=True)
        self._thread.start()

    def count(self, name, n=1):
        with self._lock:
            self.counts[name] = self.counts.get(name, 0) + n

    def add_step(self, **values):
        with self._lock:
            self.history.append({"t": time.time(), **values})

    def _write_loop(self):
        while True:
            time.sleep(self.every)
            with self._lock:
                text = json.dumps({"counts": self.counts, "history": self.history}, indent=1)
                self.path.write_text(text)
