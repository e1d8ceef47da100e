import json
import logging
import os
import select
import signal
import socket

import torch

log = logging.getLogger("server")


class ScoringApp:
    def __init__(self, features=32):
        torch.manual_seed(1)
        self.features = features
        self.model = torch.nn.Sequential(
            torch.nn.Linear(features, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256), torch.nn.ReLU(),
            torch.nn.Linear(256, 1), torch.nn.Sigmoid(),
        ).eval()

    @torch.no_grad()
    def __call__(self, body):
        rows = torch.tensor(json.loads(body)["rows"], dtype=torch.float32)
        scores = self.model(rows)[:, 0]
        return json.dumps({"scores": [round(s, 5) for s in scores.tolist()], "worker": os.getpid()}).encode()


class ScoringWorker:
    """One preforked worker: waits on the shared listening socket and serves one request at a time."""

    def __init__(self, listener, app):
        self.listener = listener
        self.app = app
        self.served = 0
        self.running = True
        self.parent = os.getppid()

    def stop(self, *_):
        self.running = False

    def run(self):
        torch.set_num_threads(1)
        signal.signal(signal.SIGTERM, self.stop)
        self.listener.setblocking(False)
        poller = select.epoll()
        poller.register(self.listener.fileno(), select.EPOLLIN | select.EPOLLEXCLUSIVE)
        log.info("worker %d booted", os.getpid())
        while self.running and os.getppid() == self.parent:
            if not poller.poll(5.0):
                continue
            try:
                client, _ = self.listener.accept()
            except BlockingIOError:
                continue
            with client:
                client.setblocking(True)
                client.settimeout(10)
                self.handle(client)

    def handle(self, client):
        data = b""
        while b"\r\n\r\n" not in data:
            chunk = client.recv(65536)
            if not chunk:
                return
            data += chunk
        head, body = data.split(b"\r\n\r\n", 1)
        length = int([h for h in head.split(b"\r\n") if h.lower().startswith(b"content-length")][0].split(b":")[1])
        while len(body) < length:
            body += client.recv(65536)
        reply = self.app(body)
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(reply) + reply)
        self.served += 1


def bind(port=0, backlog=64):
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("127.0.0.1", port))
    s.listen(backlog)
    return s
