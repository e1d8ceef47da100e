"""A stand-in for the relay daemon's control port."""
import os
import socketserver
import threading

import numpy as np


class ControlHandler(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def handle(self):
        rng = np.random.default_rng(5)
        for line in self.rfile:
            key = line.decode().strip().partition(" ")[2]
            if key.startswith("bw-event-cache/"):
                count = int(key.rpartition("/")[2])
                data = rng.gamma(2.0, 40_000.0, (count, 2)).astype(np.float32).tobytes()
                self.wfile.write(b"%d\r\n" % len(data) + data)
            elif key == "version":
                self.wfile.write(b"250 0.4.8.12\r\n")
            elif key == "traffic/read":
                self.wfile.write(b"250 %d\r\n" % rng.integers(10**9))
            elif key in ("address", "fingerprint"):
                self.wfile.write(b"551 Not running in server mode\r\n")
            else:
                self.wfile.write(b"552 Unrecognized key\r\n")


class Control(socketserver.ThreadingTCPServer):
    daemon_threads = True


def run(pipe, lifetime):
    timer = threading.Timer(lifetime, os._exit, args=(0,))
    timer.daemon = True
    timer.start()
    with Control(("127.0.0.1", 0), ControlHandler) as server:
        pipe.send(server.server_address)
        server.serve_forever()
