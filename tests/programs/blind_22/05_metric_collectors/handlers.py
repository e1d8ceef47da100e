"""Delivers metrics to a carbon relay."""
import logging
import pickle
import socket
import struct

log = logging.getLogger("handler")


class CarbonHandler:
    def __init__(self, address, timeout):
        self.address = address
        self.timeout = timeout
        self.sent = 0
        self.failed = 0

    def _connect(self):
        sock = socket.create_connection(self.address, timeout=self.timeout)
        sock.settimeout(self.timeout)
        greeting = sock.recv(64)
        if not greeting.startswith(b"CARBON"):
            sock.close()
            raise ConnectionError("relay sent no greeting")
        return sock

    def process(self, metric):
        payload = pickle.dumps((metric.path, metric.timestamp, metric.values.tobytes()))
        try:
            sock = self._connect()
            with sock:
                sock.sendall(struct.pack("!I", len(payload)) + payload)
            self.sent += 1
        except OSError as err:
            self.failed += 1
            log.warning("could not deliver %s to %s:%d: %s", metric.path, *self.address, err)


def handler_main(queue, address, timeout):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    handler = CarbonHandler(address, timeout)
    while True:
        metric = queue.get()
        if metric is None:
            log.info("handler done: %d sent, %d failed", handler.sent, handler.failed)
            return
        handler.process(metric)
