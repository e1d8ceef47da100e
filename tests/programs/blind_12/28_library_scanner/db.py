import sqlite3


def connect(path):
    conn = sqlite3.connect(path, timeout=20, isolation_level=None)
    conn.execute("PRAGMA journal_mode=WAL")
    conn.execute("PRAGMA synchronous=NORMAL")
    conn.execute("PRAGMA busy_timeout=20000")
    return conn


def create(path):
    conn = connect(path)
    conn.executescript("""
        CREATE TABLE tasks(id INTEGER PRIMARY KEY, file TEXT, status TEXT DEFAULT 'pending', worker TEXT);
        CREATE INDEX tasks_status ON tasks(status);
        CREATE TABLE titles(file TEXT PRIMARY KEY, digest TEXT, size INTEGER);
        CREATE TABLE counters(name TEXT PRIMARY KEY, value INTEGER);
        INSERT INTO counters VALUES ('identified', 0);
    """)
    conn.close()
