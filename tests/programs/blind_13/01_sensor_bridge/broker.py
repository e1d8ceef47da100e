"""Line based publish/subscribe broker: one JSON object per line."""
import json
import logging
import socket
import threading

log = logging.getLogger("broker")


class Broker:
    def __init__(self):
        self._subs = {}
        self._lock = threading.Lock()
        self._sock = socket.create_server(("127.0.0.1", 0))
        self.address = self._sock.getsockname()

    def serve_forever(self):
        while True:
            conn, peer = self._sock.accept()
            threading.Thread(target=self._session, args=(conn,), daemon=True).start()

    def _session(self, conn):
        reader = conn.makefile("rb")
        for line in reader:
            msg = json.loads(line)
            kind = msg["type"]
            if kind == "connect":
                conn.sendall(b'{"type": "connack"}\n')
            elif kind == "subscribe":
                with self._lock:
                    self._subs.setdefault(msg["topic"], []).append(conn)
                log.info("new subscriber for %s", msg["topic"])
            elif kind == "publish":
                with self._lock:
                    targets = list(self._subs.get(msg["topic"], ()))
                for target in targets:
                    self._deliver(target, line, msg["topic"])
        conn.close()

    def _deliver(self, target, line, topic):
        try:
            target.sendall(line)
        except OSError:
            with self._lock:
                self._subs[topic].remove(target)


def run_broker(pipe):
    broker = Broker()
    pipe.send(broker.address)
    pipe.close()
    broker.serve_forever()
