"""Weight service: the learner pushes new weights, the actors pull the newest ones."""
import logging
import threading
from multiprocessing import Process
from multiprocessing.connection import Client, Listener

log = logging.getLogger("service")


class WeightService(Process):
    def __init__(self, address, authkey):
        super().__init__(name="weight-service", daemon=True)
        self.address = address
        self.secret = authkey

    def run(self):
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
        self.version = 0
        self.weights = None
        self.lock = threading.Lock()
        listener = Listener(self.address, backlog=16, authkey=self.secret)
        log.info("serving weights on %s:%d", *self.address)
        while True:
            conn = listener.accept()
            threading.Thread(target=self.handle_conn, args=(conn,), daemon=True).start()

    def handle_conn(self, conn):
        try:
            op, payload = conn.recv()
            if op == "push":
                with self.lock:
                    self.version += 1
                    self.weights = payload
                conn.send(self.version)
            elif op == "pull":
                with self.lock:
                    reply = (self.version, self.weights)
                conn.send(reply)
            else:
                conn.send(None)
        except EOFError:
            pass
        finally:
            conn.close()


class WeightClient:
    def __init__(self, address, authkey):
        self.address = address
        self.authkey = authkey

    def _call(self, op, payload=None):
        with Client(self.address, authkey=self.authkey) as conn:
            conn.send((op, payload))
            return conn.recv()

    def push(self, state):
        return self._call("push", state)

    def pull(self):
        return self._call("pull")
