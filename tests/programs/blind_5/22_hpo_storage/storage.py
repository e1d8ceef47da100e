import sqlite3
import time


class TrialStorage:
    """Keeps trials and intermediate values of a study in one sqlite file."""

    def __init__(self, path):
        self.path = path
        self.conn = sqlite3.connect(path, timeout=120.0)

    def create_tables(self):
        self.conn.execute("CREATE TABLE IF NOT EXISTS trials (id INTEGER PRIMARY KEY, worker INT, lr REAL, state TEXT)")
        self.conn.execute("CREATE TABLE IF NOT EXISTS trial_values (trial INT, step INT, value REAL, ts REAL)")
        self.conn.commit()

    def new_trial(self, worker, lr):
        cur = self.conn.execute("INSERT INTO trials (worker, lr, state) VALUES (?, ?, 'RUNNING')", (worker, lr))
        self.conn.commit()
        return cur.lastrowid

    def report(self, trial, step, value):
        self.conn.execute("INSERT INTO trial_values VALUES (?, ?, ?, ?)", (trial, step, value, time.time()))
        self.conn.commit()

    def finish(self, trial):
        self.conn.execute("UPDATE trials SET state = 'COMPLETE' WHERE id = ?", (trial,))
        self.conn.commit()
