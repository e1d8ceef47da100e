"""Per-actor event journal: JSON lines, safe to use from several threads."""
import json
import threading
import time
from collections import Counter


class Journal:
    def __init__(self, path, actor):
        self.actor = actor
        self._lock = threading.Lock()
        self._file = open(path, "a", encoding="utf-8")
        self._counts = Counter()

    def write(self, event, **fields):
        with self._lock:
            self._counts[event] += 1
            record = {"t": time.time(), "actor": self.actor, "event": event,
                      "n": self._counts[event]}
            record.update(self._plain(fields))
            self._file.write(json.dumps(record) + "\n")
            self._file.flush()

    def counts(self):
        with self._lock:
            return dict(self._counts)

    @classmethod
    def _plain(cls, value):
        if isinstance(value, dict):
            return {str(k): cls._plain(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [cls._plain(v) for v in value]
        if isinstance(value, float):
            return round(value, 4)
        return value
