import json
import sqlite3
import time
from contextlib import contextmanager

SCHEMA = """
CREATE TABLE IF NOT EXISTS requests(
    id INTEGER PRIMARY KEY, state TEXT NOT NULL, payload TEXT, result TEXT, updated REAL);
CREATE INDEX IF NOT EXISTS by_state ON requests(state);
CREATE TABLE IF NOT EXISTS checkpoints(
    id INTEGER PRIMARY KEY, step INTEGER, path TEXT, size INTEGER, updated REAL);
"""


class RequestStore:
    def __init__(self, path, busy_timeout=60.0):
        self.db = sqlite3.connect(path, timeout=busy_timeout, isolation_level=None)
        self.db.execute("PRAGMA synchronous=OFF")

    def create(self):
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.executescript(SCHEMA)

    @contextmanager
    def session(self):
        self.db.execute("BEGIN IMMEDIATE")
        try:
            yield self.db
        except BaseException:
            self.db.execute("ROLLBACK")
            raise
        self.db.execute("COMMIT")

    def add(self, payloads):
        with self.session() as db:
            db.executemany("INSERT INTO requests(state, payload, updated) VALUES('pending', ?, ?)",
                           [(json.dumps(p), time.time()) for p in payloads])

    def claim(self):
        with self.session() as db:
            row = db.execute("SELECT id, payload FROM requests WHERE state='pending' "
                             "ORDER BY id LIMIT 1").fetchone()
            if row:
                db.execute("UPDATE requests SET state='running', updated=? WHERE id=?",
                           (time.time(), row[0]))
        return row

    def finish(self, request_id, result):
        with self.session() as db:
            db.execute("UPDATE requests SET state='done', result=?, updated=? WHERE id=?",
                       (json.dumps(result), time.time(), request_id))

    def counts(self):
        rows = dict(self.db.execute("SELECT state, count(*) FROM requests GROUP BY state"))
        return rows.get("pending", 0), rows.get("done", 0)
