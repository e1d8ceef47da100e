"""Task queue workers on the shared database."""
import hashlib
import logging
import random
import time

from db import connect

log = logging.getLogger("tasks")


class TaskWorker:
    def __init__(self, path, name, chunk):
        self.conn = connect(path)
        self.name = name
        self.chunk = chunk

    def claim(self):
        self.conn.execute("BEGIN IMMEDIATE")
        rows = self.conn.execute("SELECT id, file FROM tasks WHERE status='pending' LIMIT ?", (self.chunk,)).fetchall()
        self.conn.executemany("UPDATE tasks SET status='running', worker=? WHERE id=?",
                              [(self.name, r[0]) for r in rows])
        self.conn.execute("COMMIT")
        return rows

    def identify(self, file):
        data = random.Random(file).randbytes(60_000)
        return hashlib.sha256(data).hexdigest(), len(data)

    def finish(self, rows, found):
        self.conn.execute("BEGIN IMMEDIATE")
        for (task_id, file), (digest, size) in zip(rows, found):
            self.conn.execute("INSERT OR REPLACE INTO titles VALUES (?, ?, ?)", (file, digest, size))
            self.conn.execute("UPDATE tasks SET status='completed' WHERE id=?", (task_id,))
            self.conn.execute("UPDATE counters SET value = value + 1 WHERE name='identified'")
            time.sleep(0.012)
        self.conn.execute("COMMIT")

    def run(self, stop):
        done = 0
        while not stop.is_set():
            rows = self.claim()
            if not rows:
                time.sleep(0.3)
                continue
            self.finish(rows, [self.identify(f) for _, f in rows])
            done += len(rows)
        log.info("%s leaves after %d files", self.name, done)


def worker_main(path, name, chunk, stop):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    TaskWorker(path, name, chunk).run(stop)
