"""Writes one row per result to the scan database and keeps the running summary."""
import json
import sqlite3
import time


class Recorder:
    def __init__(self, path):
        self.db = sqlite3.connect(path)
        self.db.execute("CREATE TABLE results (transcript TEXT, scanner TEXT, value REAL, evidence TEXT, "
                        "messages INTEGER, chars INTEGER)")
        self.db.execute("CREATE INDEX by_scanner ON results (scanner, value)")
        self.rows = 0

    def record(self, item):
        chars = sum(len(m["content"]) for m in item.transcript.messages)
        self.db.execute("INSERT INTO results VALUES (?, ?, ?, ?, ?, ?)",
                        (item.transcript.transcript_id, item.scanner, item.value, json.dumps(item.evidence),
                         len(item.transcript.messages), chars))
        self.db.commit()
        self.rows += 1
        time.sleep(0.02)  # the log viewer's index is refreshed over http

    def summary(self):
        return dict(self.db.execute("SELECT scanner, avg(value) FROM results GROUP BY scanner"))

    def close(self):
        self.db.close()
