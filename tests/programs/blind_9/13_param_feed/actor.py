import logging
import queue
import time

import numpy as np

log = logging.getLogger("actor")


class Actor:
    def __init__(self, index, parameters, transitions, seed):
        self.index, self.parameters, self.transitions = index, parameters, transitions
        self.rng = np.random.default_rng(seed)
        self.weights = None

    def refresh(self):
        try:
            self.weights = self.parameters.get_nowait()
        except queue.Empty:
            pass

    def episode(self, steps=40):
        obs = self.rng.normal(size=64).astype(np.float32)
        out = []
        for _ in range(steps):
            if self.weights is None:
                a = self.rng.uniform(-1, 1, 4).astype(np.float32)
            else:
                h = np.maximum(self.weights["0.weight"] @ obs + self.weights["0.bias"], 0)
                a = np.tanh(self.weights["2.weight"] @ h + self.weights["2.bias"])
            nxt = (0.9 * obs + 0.1 * self.rng.normal(size=64)).astype(np.float32)
            out.append((obs, a, -float(np.square(nxt).mean())))
            obs = nxt
            time.sleep(0.04)
        return out

    def run(self):
        n = 0
        while True:
            self.refresh()
            self.transitions.put(self.episode())
            n += 1
            log.info("actor %d finished episode %d", self.index, n)
