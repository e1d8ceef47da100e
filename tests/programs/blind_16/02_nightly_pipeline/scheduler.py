"""The central scheduler: keeps task states and worker liveness."""
import json
import socketserver
import threading
import time


class State:
    def __init__(self):
        self.tasks = {}
        self.workers = {}
        self.lock = threading.Lock()

    def ping(self, worker):
        with self.lock:
            self.workers[worker] = time.time()
            time.sleep(0.12)  # prune: walks task history on disk
            return len(self.workers)

    def add_task(self, task_id, params):
        with self.lock:
            self.tasks.setdefault(task_id, {"status": "PENDING", "params": params})

    def update(self, task_id, status):
        with self.lock:
            self.tasks[task_id]["status"] = status

    def counts(self):
        with self.lock:
            out = {}
            for t in self.tasks.values():
                out[t["status"]] = out.get(t["status"], 0) + 1
            return out


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        request = json.loads(self.rfile.readline())
        result = getattr(self.server.state, request["method"])(**request["args"])
        self.wfile.write(json.dumps({"result": result}).encode() + b"\n")


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


def serve(sender):
    server = Server(("127.0.0.1", 0), Handler)
    server.state = State()
    sender.send(server.server_address[1])
    sender.close()
    server.serve_forever()
