import json
import socket
import threading


class RemoteScheduler:
    """Talks to the central scheduler, one request at a time."""

    def __init__(self, host, port, timeout=10.0):
        self._host, self._port, self._timeout = host, port, timeout
        self._lock = threading.Lock()
        self._addresses = {}

    def _resolve(self):
        key = (self._host, self._port)
        if key not in self._addresses:
            info = socket.getaddrinfo(*key, socket.AF_INET, socket.SOCK_STREAM)
            self._addresses[key] = info[0][4]
        return self._addresses[key]

    def _request(self, method, **args):
        with self._lock:
            address = self._resolve()
            with socket.create_connection(address, timeout=self._timeout) as conn:
                conn.sendall(json.dumps({"method": method, "args": args}).encode() + b"\n")
                with conn.makefile("r") as reply:
                    return json.loads(reply.readline())["result"]

    def ping(self, worker):
        return self._request("ping", worker=worker)

    def add_task(self, task_id, params):
        return self._request("add_task", task_id=task_id, params=params)

    def update(self, task_id, status):
        return self._request("update", task_id=task_id, status=status)

    def counts(self):
        return self._request("counts")
