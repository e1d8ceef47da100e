"""A session with the parameter server that recovers from lost connections."""
import logging
import time
from multiprocessing.connection import Client

log = logging.getLogger("session")


class Session:
    def __init__(self, address, recovery_wait=1.0):
        self.address = address
        self.recovery_wait = recovery_wait
        self.conn = None

    def connect(self):
        while True:
            try:
                self.conn = Client(self.address)
                return
            except (ConnectionError, OSError):
                log.debug("waiting for model to be ready")
                time.sleep(self.recovery_wait)

    def run(self, name, *arguments):
        while True:
            if self.conn is None:
                self.connect()
            try:
                self.conn.send((name, arguments))
                return self.conn.recv()
            except (EOFError, ConnectionError):
                self.conn = None
