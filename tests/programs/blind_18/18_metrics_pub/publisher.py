"""Streams metrics as JSON lines to whoever is connected."""
import json
import queue
import socket

from procutil import Child


class MetricsPublisher(Child):
    def __init__(self, metrics, port_pipe):
        super().__init__(name="publisher", daemon=True)
        self.metrics = metrics
        self.port_pipe = port_pipe

    def _accept(self, server, clients):
        try:
            while True:
                conn, addr = server.accept()
                conn.settimeout(5.0)
                clients[conn] = addr
                self.log.info("subscriber %s:%d", *addr)
        except BlockingIOError:
            pass

    def _broadcast(self, clients, payload):
        for conn in list(clients):
            try:
                conn.sendall(payload)
            except OSError as exc:
                self.log.info("subscriber %s gone: %s", clients.pop(conn), exc)
                conn.close()

    def main(self):
        server = socket.create_server(("127.0.0.1", 0))
        server.setblocking(False)
        self.port_pipe.send(server.getsockname()[1])
        clients, published = {}, 0
        while True:
            self._accept(server, clients)
            try:
                item = self.metrics.get(timeout=0.5)
            except queue.Empty:
                continue
            self._broadcast(clients, json.dumps(item).encode() + b"\n")
            published += 1
            if published % 100 == 0:
                self.log.info("%d metrics published to %d subscribers", published, len(clients))
