import json
import sqlite3
from contextlib import contextmanager


class Session:
    def __init__(self, conn):
        self.conn = conn

    def get(self, key):
        row = self.conn.execute("SELECT value FROM results WHERE key = ?", (key,)).fetchone()
        return json.loads(row[0]) if row else None

    def put(self, key, value):
        self.conn.execute("INSERT OR REPLACE INTO results VALUES (?, ?)", (key, json.dumps(value)))


class ResultStore:
    """A dict of results in one table, shared by all processes."""

    def __init__(self, path, timeout=120.0):
        self.path, self.timeout = str(path), timeout
        self._conn = None

    def _connection(self):
        if self._conn is None:
            self._conn = sqlite3.connect(self.path, timeout=self.timeout, isolation_level=None)
            self._conn.execute("PRAGMA synchronous = NORMAL")
        return self._conn

    def create(self):
        conn = sqlite3.connect(self.path)
        conn.execute("PRAGMA journal_mode = WAL")
        conn.execute("CREATE TABLE IF NOT EXISTS results (key INTEGER PRIMARY KEY, value TEXT)")
        conn.commit()
        conn.close()

    @contextmanager
    def session(self):
        conn = self._connection()
        conn.execute("BEGIN IMMEDIATE")
        try:
            yield Session(conn)
        except BaseException:
            conn.execute("ROLLBACK")
            raise
        conn.execute("COMMIT")
