"""The hub keeps task states and logs; agents talk to it over XML-RPC."""
import logging
import signal
import time
from xmlrpc.client import ServerProxy
from xmlrpc.server import SimpleXMLRPCRequestHandler, SimpleXMLRPCServer


class QuietHandler(SimpleXMLRPCRequestHandler):
    def log_message(self, *args):
        pass


class Hub:
    def __init__(self, rotate_after, rotate_seconds):
        self.logs = {}
        self.states = {}
        self.first_upload = None
        self.rotate = (rotate_after, rotate_after + rotate_seconds)

    def upload_task_log(self, task, text):
        """Append to a task's log; False while the log volume is being rotated."""
        if self.first_upload is None:
            self.first_upload = time.monotonic()
        now = time.monotonic() - self.first_upload
        if self.rotate[0] <= now < self.rotate[1]:
            return False
        self.logs[task] = self.logs.get(task, 0) + len(text)
        return True

    def set_state(self, task, state):
        self.states[task] = state
        return True

    def summary(self):
        return {"states": self.states, "log_bytes": self.logs}


def serve(ready, rotate_after, rotate_seconds, walltime):
    signal.alarm(walltime)
    server = SimpleXMLRPCServer(("127.0.0.1", 0), QuietHandler, logRequests=False)
    server.register_instance(Hub(rotate_after, rotate_seconds))
    ready.send(server.server_address[1])
    logging.getLogger("hub").info("hub listens on port %d", server.server_address[1])
    server.serve_forever()


class HubClient:
    def __init__(self, port):
        self.proxy = ServerProxy(f"http://127.0.0.1:{port}")

    def upload_task_log(self, task, text, pause=1.0):
        attempt = 1
        while not self.proxy.upload_task_log(task, text):
            print(f"hub did not take {len(text)} bytes of the log of task {task}, attempt {attempt}")
            attempt += 1
            time.sleep(pause)

    def set_state(self, task, state):
        self.proxy.set_state(task, state)
