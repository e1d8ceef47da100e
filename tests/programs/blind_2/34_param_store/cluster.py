import argparse
import logging
import multiprocessing as mp
import os
import tempfile
import time
from multiprocessing.managers import BaseManager

import numpy as np

from client import connect

FORMAT = "%(asctime)s %(processName)s %(message)s"


class ParameterStore:
    def __init__(self, dim):
        self.w = np.zeros(dim)
        self.pushes = 0

    def pull(self):
        return self.w

    def push(self, grad, lr):
        self.w -= lr * grad
        self.pushes += 1
        return self.pushes


def serve(address, authkey, dim, load_seconds):
    logging.basicConfig(level=logging.INFO, format=FORMAT)
    logging.info("loading snapshot")
    time.sleep(load_seconds)
    store = ParameterStore(dim)

    class Server(BaseManager):
        pass

    Server.register("get_store", callable=lambda: store)
    logging.info("serving at %s", address)
    Server(address, authkey=authkey).get_server().serve_forever()


def work(address, authkey, seed, steps):
    logging.basicConfig(level=logging.INFO, format=FORMAT)
    store = connect(address, authkey)
    rng = np.random.default_rng(seed)
    truth = np.linspace(-1, 1, 200)
    for step in range(steps):
        x = rng.standard_normal((64, 200))
        grad = x.T @ (x @ (store.pull() - truth)) / 64
        n = store.push(grad, 0.02)
        time.sleep(0.05)
        if step % 100 == 0:
            logging.info("step %d, store has %d pushes, |g| %.3f", step, n, np.abs(grad).mean())


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--steps", type=int, default=700)
    p.add_argument("--load-seconds", type=float, default=18)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format=FORMAT)
    authkey = os.urandom(8)
    with tempfile.TemporaryDirectory() as tmp:
        address = os.path.join(tmp, "store.sock")
        server = mp.Process(target=serve, args=(address, authkey, 200, args.load_seconds), name="store")
        server.start()
        workers = [mp.Process(target=work, args=(address, authkey, i, args.steps), name=f"worker-{i}")
                   for i in range(args.workers)]
        for w in workers:
            w.start()
        for w in workers:
            w.join()
        server.terminate()
        server.join()
    logging.info("all workers done, store stopped (%s)", server.exitcode)


if __name__ == "__main__":
    main()
