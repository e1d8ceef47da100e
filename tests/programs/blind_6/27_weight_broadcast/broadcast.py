"""Versioned weights: one sender thread per actor sleeps until a new version exists."""
import logging
import threading

log = logging.getLogger("broadcast")


class WeightBoard:
    def __init__(self):
        self.cond = threading.Condition()
        self.version, self.weights = 0, None

    def publish(self, weights):
        with self.cond:
            self.version += 1
            self.weights = weights
            self.cond.notify_all()

    def wait_newer(self, version):
        with self.cond:
            self.cond.wait_for(lambda: self.version > version)
            return self.version, self.weights


class Sender(threading.Thread):
    def __init__(self, board, conn, name):
        super().__init__(name=name, daemon=True)
        self.board, self.conn = board, conn

    def run(self):
        version = 0
        while True:
            version, weights = self.board.wait_newer(version)
            self.conn.send((version, weights))
