"""The two task types."""
import logging
import threading
import time
from multiprocessing.connection import Listener

import numpy as np

from session import Session

log = logging.getLogger("task")


class EmbeddingTable:
    """Rows and their Adam slots are made when they are first touched."""

    def __init__(self, dim, lr=1e-2):
        self.dim, self.lr = dim, lr
        self.rows = {}
        self.lock = threading.Lock()
        self.version = 0

    def row(self, key):
        if key not in self.rows:
            rng = np.random.default_rng(key)
            self.rows[key] = [rng.normal(0, 0.05, self.dim).astype(np.float32),
                              np.zeros(self.dim, np.float32), np.full(self.dim, 1e-8, np.float32)]
        return self.rows[key]

    def pull(self, keys):
        with self.lock:
            return np.stack([self.row(k)[0] for k in keys])

    def push(self, keys, grads):
        with self.lock:
            for k, g in zip(keys, grads):
                w, m, v = self.row(k)
                m += 0.1 * (g - m)
                v += 0.01 * (g * g - v)
                w -= self.lr * m / (np.sqrt(v) + 1e-6)
            self.version += 1
            return self.version


def serve(conn, table):
    try:
        while True:
            name, arguments = conn.recv()
            conn.send(getattr(table, name)(*arguments))
    except EOFError:
        conn.close()


def ps_task(args, port):
    table = EmbeddingTable(args.dim)
    listener = Listener(("127.0.0.1", 0))
    port.put(listener.address[1])
    while True:
        threading.Thread(target=serve, args=(listener.accept(), table), daemon=True).start()


def worker_task(args, index, address):
    rng = np.random.default_rng(index)
    session = Session(address)
    target = np.random.default_rng(1).normal(size=args.dim).astype(np.float32)
    for step in range(1, args.steps + 1):
        keys = rng.integers(0, args.rows, size=args.batch).tolist()
        rows = session.run("pull", keys)
        error = rows @ target - np.asarray([k % 7 for k in keys], dtype=np.float32) / 7
        time.sleep(args.pace)
        version = session.run("push", keys, error[:, None] * target[None])
        if step % 20 == 0:
            log.info("step %d, version %d, loss %.4f", step, version, float((error ** 2).mean()))
