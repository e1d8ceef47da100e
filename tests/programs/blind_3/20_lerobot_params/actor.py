import logging
import time
from queue import Empty

import numpy as np

log = logging.getLogger("actor")


class Actor:
    def __init__(self, parameters_queue, fps):
        self.queue = parameters_queue
        self.fps = fps
        self.weights = None
        self.updates = 0

    def update_policy_parameters(self):
        try:
            self.weights = self.queue.get_nowait()
            self.updates += 1
        except Empty:
            pass

    def episode(self, steps):
        obs = np.ones(128, dtype=np.float32)
        reward = 0.0
        for _ in range(steps):
            if self.weights is not None:
                for w in self.weights:
                    obs = np.tanh(w @ obs)
            reward += float(obs.mean())
            time.sleep(1 / self.fps)
        return reward

    def run(self, steps, max_time):
        start, n = time.time(), 0
        while time.time() - start < max_time:
            self.update_policy_parameters()
            reward = self.episode(steps)
            n += 1
            log.info("episode %d reward %.2f parameter updates %d", n, reward, self.updates)
