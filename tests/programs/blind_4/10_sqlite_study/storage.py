import contextlib
import json
import sqlite3

SCHEMA = """
CREATE TABLE IF NOT EXISTS trials (id INTEGER PRIMARY KEY, state TEXT, params TEXT, value REAL);
CREATE TABLE IF NOT EXISTS intermediate (trial INTEGER, step INTEGER, value REAL);
"""


class StudyStorage:
    """SQLite storage shared by the worker processes of one study."""

    def __init__(self, path, timeout=600.0):
        self.path = path
        self.timeout = timeout
        with contextlib.closing(self.connect()) as con:
            con.executescript(SCHEMA)

    def connect(self):
        return sqlite3.connect(self.path, timeout=self.timeout, isolation_level=None)

    @contextlib.contextmanager
    def transaction(self):
        con = self.connect()
        con.execute("BEGIN IMMEDIATE")
        try:
            yield con
            con.execute("COMMIT")
        except BaseException:
            con.execute("ROLLBACK")
            raise
        finally:
            con.close()

    def report(self, trial, step, value):
        with self.transaction() as con:
            con.execute("INSERT INTO intermediate VALUES (?, ?, ?)", (trial, step, value))

    @staticmethod
    def claim(con, sampler):
        params = sampler()
        cur = con.execute("INSERT INTO trials (state, params) VALUES ('RUNNING', ?)", (json.dumps(params),))
        return cur.lastrowid, params

    @staticmethod
    def finish(con, trial, value):
        con.execute("UPDATE trials SET state = 'COMPLETE', value = ? WHERE id = ?", (value, trial))
