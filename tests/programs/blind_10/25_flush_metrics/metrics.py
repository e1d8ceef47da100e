import json
import logging
import threading
import time

log = logging.getLogger("metrics")


class MetricSink:
    """Collects values and writes them to a slow shared file system from a thread."""

    def __init__(self, path, interval, chunk_pause):
        self.path = path
        self.interval = interval
        self.chunk_pause = chunk_pause
        self._lock = threading.Lock()
        self._pending = []
        self._thread = None

    def start(self):
        self._thread = threading.Thread(target=self._loop, name="metric-flush", daemon=True)
        self._thread.start()

    def record(self, name, value):
        with self._lock:
            self._pending.append((time.time(), name, value))

    def _loop(self):
        while True:
            time.sleep(self.interval)
            with self._lock:
                self._write(self._pending)
                self._pending = []

    def _write(self, rows):
        with open(self.path, "a") as handle:
            for row in rows:
                handle.write(json.dumps(row) + "\n")
                handle.flush()
                time.sleep(self.chunk_pause)


_sink = None


def configure(path, interval=0.2, chunk_pause=0.1):
    global _sink
    _sink = MetricSink(path, interval, chunk_pause)
    _sink.start()


def record(name, value):
    _sink.record(name, value)
