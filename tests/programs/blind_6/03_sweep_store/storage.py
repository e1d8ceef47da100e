"""SQLite backed storage for the sweep."""
import sqlite3
import time

SCHEMA = """
CREATE TABLE IF NOT EXISTS trials (
    id INTEGER PRIMARY KEY, lr REAL, width INTEGER,
    state TEXT, owner INTEGER, started REAL, value REAL);
CREATE TABLE IF NOT EXISTS reports (trial INTEGER, epoch INTEGER, value REAL);
"""


class TrialStore:
    def __init__(self, path):
        self.path = path
        self.db = sqlite3.connect(path, timeout=3600)

    def create(self, grid):
        self.db.executescript(SCHEMA)
        self.db.executemany(
            "INSERT INTO trials (lr, width, state) VALUES (?, ?, 'WAITING')", grid
        )
        self.db.commit()

    def waiting(self):
        rows = self.db.execute("SELECT id, lr, width FROM trials WHERE state='WAITING'")
        return rows.fetchall()

    def start(self, trial, owner):
        cur = self.db.execute(
            "UPDATE trials SET state='RUNNING', owner=?, started=? "
            "WHERE id=? AND state='WAITING'",
            (owner, time.time(), trial),
        )
        return cur.rowcount == 1

    def report(self, trial, epoch, value):
        self.db.execute("INSERT INTO reports VALUES (?, ?, ?)", (trial, epoch, value))
        self.db.commit()

    def finish(self, trial, value, state="COMPLETE"):
        self.db.execute("UPDATE trials SET state=?, value=? WHERE id=?", (state, value, trial))
        self.db.commit()

    def best_at(self, epoch):
        row = self.db.execute("SELECT MIN(value) FROM reports WHERE epoch=?", (epoch,)).fetchone()
        return row[0]
