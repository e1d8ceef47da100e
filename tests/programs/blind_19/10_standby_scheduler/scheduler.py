import fcntl
import hashlib
import http.server
import json
import logging
import os
import sqlite3
import threading
import time

log = logging.getLogger("scheduler")


class HealthServer:
    def __init__(self, scheduler):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                body = json.dumps(scheduler.health()).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        self.httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.httpd.server_address[1]
        threading.Thread(target=self.httpd.serve_forever, name="health", daemon=True).start()


class Job:
    def __init__(self, name, every, size):
        self.name, self.every, self.size = name, every, size
        self.due = 0.0

    def run(self):
        data = os.urandom(self.size)
        digest = hashlib.sha256()
        for i in range(0, len(data), 4096):
            digest.update(data[i:i + 4096])
        return digest.hexdigest()


class Scheduler:
    """Several instances may be started; the one that holds the lock schedules."""

    def __init__(self, name, state_dir):
        self.name = name
        self.lock_path = os.path.join(state_dir, "scheduler.lock")
        self.db_path = os.path.join(state_dir, "history.sqlite")
        self.status = "starting"
        self.jobs = [Job("ingest", 1.0, 400_000), Job("compact", 3.0, 1_500_000), Job("report", 10.0, 4_000_000)]
        self.runs = 0

    def health(self):
        return {"name": self.name, "status": self.status, "runs": self.runs, "pid": os.getpid()}

    def acquire(self):
        self.status = "standby"
        log.info("waiting for the scheduler lock")
        self.lock_file = open(self.lock_path, "a+")
        fcntl.flock(self.lock_file, fcntl.LOCK_EX)
        self.status = "active"
        log.info("lock acquired, scheduling")

    def record(self, job, digest, took):
        self.db.execute("insert into runs values (?, ?, ?, ?, ?)", (time.time(), self.name, job.name, digest, took))
        self.db.commit()

    def loop(self, parent):
        self.db = sqlite3.connect(self.db_path)
        self.db.execute("create table if not exists runs (at real, instance text, job text, digest text, took real)")
        while os.getppid() == parent:
            now = time.monotonic()
            for job in self.jobs:
                if now >= job.due:
                    job.due = now + job.every
                    tick = time.monotonic()
                    digest = job.run()
                    self.record(job, digest, time.monotonic() - tick)
                    self.runs += 1
            time.sleep(0.2)


def instance_main(name, state_dir, ports):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    scheduler = Scheduler(name, state_dir)
    server = HealthServer(scheduler)
    ports.put((name, server.port))
    parent = os.getppid()
    scheduler.acquire()
    scheduler.loop(parent)
