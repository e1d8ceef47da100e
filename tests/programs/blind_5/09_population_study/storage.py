import math
import sqlite3
import time


class TrialPruned(Exception):
    pass


class Storage:
    def __init__(self, path):
        self.conn = sqlite3.connect(path, timeout=3600, isolation_level=None)

    def create(self, generations, members):
        self.conn.execute("CREATE TABLE trials (generation INT, member INT, lr REAL, state TEXT, value REAL)")
        rows = [
            (g, m, 0.1 * ((m * 7 + 1) % members + 1) * (1 + g / 10), "waiting", None)
            for g in range(generations)
            for m in range(members)
        ]
        self.conn.executemany("INSERT INTO trials VALUES (?,?,?,?,?)", rows)

    def claim(self, generation):
        self.conn.execute("BEGIN IMMEDIATE")
        row = self.conn.execute(
            "SELECT rowid, member, lr FROM trials WHERE generation=? AND state='waiting' LIMIT 1", (generation,)
        ).fetchone()
        if row:
            self.conn.execute("UPDATE trials SET state='running' WHERE rowid=?", (row[0],))
        self.conn.execute("COMMIT")
        return row

    def finish(self, rowid, value):
        self.conn.execute("BEGIN IMMEDIATE")
        self.conn.execute("UPDATE trials SET state='complete', value=? WHERE rowid=?", (value, rowid))
        if not math.isfinite(value) or value > 1e3:
            self.conn.execute("UPDATE trials SET state='pruned', value=NULL WHERE rowid=?", (rowid,))
            raise TrialPruned(f"value {value:.3g}")
        self.conn.execute("COMMIT")

    def open_trials(self, generation):
        return self.conn.execute(
            "SELECT count(*) FROM trials WHERE generation=? AND state IN ('waiting','running')", (generation,)
        ).fetchone()[0]

    def wait_for_generation(self, generation):
        while self.open_trials(generation):
            time.sleep(0.5)
