"""Socket server side of the calculator: starts the worker and talks to it."""
import logging
import os
import pickle
import socket
import struct
import subprocess
import sys

log = logging.getLogger("rootstock.server")

HERE = os.path.dirname(os.path.abspath(__file__))


def send_msg(conn, kind, payload=None):
    body = pickle.dumps((kind, payload))
    conn.sendall(struct.pack("!I", len(body)) + body)


def recv_exact(conn, n):
    chunks = []
    while n:
        data = conn.recv(n)
        if not data:
            raise ConnectionError("worker closed the connection")
        chunks.append(data)
        n -= len(data)
    return b"".join(chunks)


def recv_msg(conn):
    (size,) = struct.unpack("!I", recv_exact(conn, 4))
    return pickle.loads(recv_exact(conn, size))


class RootstockServer:
    """Runs one model in its own process and exchanges positions and forces."""

    def __init__(self, model, species, seed=0, verbose=True):
        self.model = model
        self.species = species
        self.seed = seed
        self.verbose = verbose
        self.process = None
        self.conn = None

    def start(self):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        port = listener.getsockname()[1]
        cmd = [sys.executable, os.path.join(HERE, "worker.py"), "--port", str(port),
               "--model", self.model, "--seed", str(self.seed)]
        if self.verbose:
            cmd.append("--verbose")
        self.process = subprocess.Popen(cmd, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.conn, _ = listener.accept()
        listener.close()
        send_msg(self.conn, "INIT", {"species": self.species})
        kind, info = recv_msg(self.conn)
        assert kind == "READY"
        log.info("worker %d ready: %s", self.process.pid, info)

    def calculate(self, positions):
        send_msg(self.conn, "POSDATA", positions)
        kind, result = recv_msg(self.conn)
        if kind != "FORCEREADY":
            raise RuntimeError(f"unexpected answer {kind}")
        return result["energy"], result["forces"]

    def close(self):
        if self.conn is not None:
            send_msg(self.conn, "EXIT")
            self.conn.close()
        if self.process is not None:
            self.process.wait()
