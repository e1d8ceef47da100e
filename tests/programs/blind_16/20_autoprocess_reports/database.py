import sqlite3

SCHEMA = """CREATE TABLE IF NOT EXISTS tasks (
    id INTEGER PRIMARY KEY, sample TEXT, category TEXT, status TEXT DEFAULT 'completed')"""


class Database:
    """The tasks of the sandbox; only the dispatcher touches it."""

    def __init__(self, path):
        self.con = sqlite3.connect(path)
        self.con.execute(SCHEMA)
        self.con.commit()

    def add(self, sample, category):
        self.con.execute("INSERT INTO tasks (sample, category) VALUES (?, ?)", (sample, category))
        self.con.commit()

    def list_tasks(self, status, limit):
        return self.con.execute("SELECT id, sample, category FROM tasks WHERE status = ? ORDER BY id LIMIT ?",
                                (status, limit)).fetchall()

    def set_status(self, task_id, status):
        self.con.execute("UPDATE tasks SET status = ? WHERE id = ?", (status, task_id))
        self.con.commit()

    def count(self, status):
        return self.con.execute("SELECT COUNT(*) FROM tasks WHERE status = ?", (status,)).fetchone()[0]
