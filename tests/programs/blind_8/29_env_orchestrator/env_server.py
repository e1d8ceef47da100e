import logging
import multiprocessing as mp
import time

import numpy as np

log = logging.getLogger("env")


class EnvServer(mp.Process):
    def __init__(self, index, conn):
        super().__init__(name=f"env-{index}", daemon=False)
        self.index = index
        self.conn = conn

    def step(self, rng, action):
        time.sleep(0.03)
        return rng.standard_normal(24).astype(np.float32), float(-np.square(action).sum())

    def run(self):
        rng = np.random.default_rng(self.index)
        served = 0
        idle_since = time.time()
        while True:
            if not self.conn.poll(1.0):
                if time.time() - idle_since > 15:
                    log.info("waiting for requests, %d served", served)
                    idle_since = time.time()
                continue
            kind, payload = self.conn.recv()
            idle_since = time.time()
            served += 1
            if kind == "step":
                self.conn.send(self.step(rng, payload))
            elif kind == "eval":
                self.conn.send(sum(self.step(rng, np.zeros(4))[1] for _ in range(payload)))
            elif kind == "close":
                return
