"""A tiny scheduler: hands out scan tasks over HTTP and keeps track of what came back."""
import json
import logging
import random
import threading
import time
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

log = logging.getLogger("scheduler")

BOEFJES = ["dns-records", "nmap", "ssl-scan", "http-headers"]


class TaskStore:
    def __init__(self, rate, seed):
        self.rate = rate
        self.rng = random.Random(seed)
        self.queue = deque()
        self.dispatched = {}
        self.completed = 0
        self.lock = threading.Lock()

    def produce(self):
        n = 0
        while True:
            n += 1
            boefje = self.rng.choice(BOEFJES)
            task = {"id": n, "boefje": boefje, "target": f"host{self.rng.randrange(400)}.example.org",
                    "ports": self.rng.choice([100, 1000])}
            if n == 36:
                task.update(boefje="nmap", target="2001:db8::/48", ports=65535)
            with self.lock:
                self.queue.append(task)
            time.sleep(self.rng.expovariate(self.rate))

    def pop(self):
        with self.lock:
            if not self.queue:
                return None
            task = self.queue.popleft()
            self.dispatched[task["id"]] = time.time()
            return task

    def done(self, task_id):
        with self.lock:
            self.dispatched.pop(task_id, None)
            self.completed += 1

    def report(self):
        while True:
            time.sleep(10)
            with self.lock:
                log.info("%d queued, %d dispatched, %d completed", len(self.queue), len(self.dispatched),
                         self.completed)


def run_scheduler(port_pipe, rate, seed):
    store = TaskStore(rate, seed)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            body = json.dumps(store.pop()).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self):
            report = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            store.done(report["id"])
            self.send_response(204)
            self.end_headers()

        def log_message(self, format, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    port_pipe.send(server.server_address[1])
    threading.Thread(target=store.produce, daemon=True).start()
    threading.Thread(target=store.report, daemon=True).start()
    server.serve_forever()
