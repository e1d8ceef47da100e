import json
import os
import threading
import time


class Journal:
    """Append-only run journal. A background thread writes records out in small batches."""

    def __init__(self, path, period=0.05):
        self.path = path
        self.period = period
        self._pending = []
        self._lock = threading.Lock()
        self._fh = open(path, "a", buffering=1)
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def record(self, **fields):
        fields.setdefault("ts", time.time())
        fields.setdefault("pid", os.getpid())
        with self._lock:
            self._pending.append(fields)

    def _run(self):
        while True:
            time.sleep(self.period)
            self.sync()

    def sync(self):
        with self._lock:
            batch, self._pending = self._pending, []
            for rec in batch:
                self._fh.write(json.dumps(rec) + "\n")
            self._fh.flush()
            os.fsync(self._fh.fileno())
            # the shared volume needs a moment before the size is right
            time.sleep(0.3)
            self._size = os.path.getsize(self.path)
