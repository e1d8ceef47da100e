"""Stage servers. Each runs in a process of its own and serves one exchange after another."""
import logging
import multiprocessing as mp
import os
import tempfile
import uuid
from multiprocessing.connection import Client, Listener

import numpy as np

log = logging.getLogger("flight.server")


def normalize(batch):
    x = batch["x"]
    batch["x"] = (x - x.mean(1, keepdims=True)) / (x.std(1, keepdims=True) + 1e-5)
    return batch


class Embed:
    def __init__(self, dim=64, out=128):
        rng = np.random.default_rng(0)
        self.w1 = rng.standard_normal((dim, 256)).astype(np.float32)
        self.w2 = rng.standard_normal((256, out)).astype(np.float32)

    def __call__(self, batch):
        batch["emb"] = np.maximum(batch["x"] @ self.w1, 0) @ self.w2
        return batch


class Nearest:
    def __init__(self, n=500, dim=128):
        self.bank = np.random.default_rng(1).standard_normal((n, dim)).astype(np.float32)

    def __call__(self, batch):
        emb = batch["emb"]
        d = (emb**2).sum(1)[:, None] - 2 * emb @ self.bank.T + (self.bank**2).sum(1)[None]
        batch["cluster"] = d.argmin(1)
        return batch


STAGES = {"normalize": lambda: normalize, "embed": Embed, "nearest": Nearest}


def serve(name, address, ready):
    fn = STAGES[name]()
    with Listener(address, family="AF_UNIX") as listener:
        ready.set()
        while True:
            conn = listener.accept()
            try:
                while True:
                    batch = conn.recv()
                    if batch is None:
                        conn.send(None)
                        break
                    conn.send(fn(batch))
            except EOFError:
                pass
            finally:
                conn.close()


class StageServer:
    def __init__(self, name):
        ctx = mp.get_context("spawn")
        self.name = name
        self.address = os.path.join(tempfile.gettempdir(), f"fl_{uuid.uuid4().hex[:10]}.sock")
        ready = ctx.Event()
        self.process = ctx.Process(target=serve, args=(name, self.address, ready), daemon=True, name=name)
        self.process.start()
        ready.wait()

    def connect(self):
        return Client(self.address, family="AF_UNIX")
