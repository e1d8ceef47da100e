import logging
import time

import numpy as np
import torch
from torch import nn

log = logging.getLogger("pump.actor")


class PixelEnv:
    def __init__(self, seed, size=64):
        self.rng = np.random.default_rng(seed)
        self.size = size
        self.frame = self.rng.random((size, size), dtype=np.float32)

    def step(self, action):
        self.frame = np.roll(self.frame, int(action) - 1, axis=0)
        return self.frame, float(self.frame[0, 0])


class RolloutActor:
    def __init__(self, ident, outbox, length):
        self.ident = ident
        self.outbox = outbox
        self.length = length
        self.env = PixelEnv(ident)
        self.policy = nn.Linear(64, 3)

    def rollout(self):
        frames = np.empty((self.length, self.env.size, self.env.size), dtype=np.float32)
        rewards = np.empty(self.length, dtype=np.float32)
        action = 1
        for t in range(self.length):
            frame, rewards[t] = self.env.step(action)
            frames[t] = frame
            if t % 16 == 0:
                with torch.no_grad():
                    action = self.policy(torch.from_numpy(frame[0])).argmax().item()
        return {"actor": self.ident, "frames": frames, "rewards": rewards}

    def run(self, pause):
        sent = 0
        while True:
            self.outbox.put(self.rollout())
            sent += 1
            if sent % 50 == 0:
                log.info("actor %d sent %d rollouts", self.ident, sent)
            time.sleep(pause)


def actor_main(ident, outbox, length, pause):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    torch.set_num_threads(1)
    RolloutActor(ident, outbox, length).run(pause)
