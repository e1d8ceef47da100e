import logging
import random
import sqlite3
import threading
import time
from contextlib import contextmanager

log = logging.getLogger("genesis.db")
BACKOFF = (0.25, 0.5, 1.0, 2.0, 2.0, 4.0)


class SerializedConnection:
    """One connection per process; lock errors are retried a few times with jitter."""

    def __init__(self, path, busy_timeout):
        self._conn = sqlite3.connect(path, timeout=busy_timeout, isolation_level=None)
        self._lock = threading.Lock()
        self.retries = 0

    def _retry_locked(self, call, *args):
        for attempt, delay in enumerate(BACKOFF, 1):
            try:
                return call(*args)
            except sqlite3.OperationalError as exc:
                if "locked" not in str(exc):
                    raise
                self.retries += 1
                pause = delay * random.uniform(0.8, 1.2)
                log.warning("%s, retry %d/%d in %.2f s", exc, attempt, len(BACKOFF), pause)
                time.sleep(pause)
        return call(*args)

    def execute(self, sql, params=()):
        with self._lock:
            return self._retry_locked(self._conn.execute, sql, params)

    def query(self, sql, params=()):
        with self._lock:
            return self._conn.execute(sql, params).fetchall()

    @contextmanager
    def transaction(self):
        with self._lock:
            self._retry_locked(self._conn.execute, "BEGIN IMMEDIATE")
            try:
                yield self._conn
            except BaseException:
                self._conn.execute("ROLLBACK")
                raise
            self._retry_locked(self._conn.execute, "COMMIT")

    def close(self):
        self._conn.close()
