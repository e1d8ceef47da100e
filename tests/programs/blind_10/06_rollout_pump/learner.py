import logging
import time

import torch
from torch import nn

log = logging.getLogger("pump.learner")


class ValueLearner:
    def __init__(self, lr=1e-3, epochs=4):
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(64 * 64, 8), nn.ReLU(), nn.Linear(8, 1))
        self.optim = torch.optim.Adam(self.net.parameters(), lr=lr)
        self.epochs = epochs
        self.updates = 0

    def learn(self, rollout):
        frames = torch.from_numpy(rollout["frames"])
        returns = torch.from_numpy(rollout["rewards"]).flip(0).cumsum(0).flip(0)
        for _ in range(self.epochs):
            pick = torch.randint(0, len(frames), (32,))
            loss = nn.functional.mse_loss(self.net(frames[pick]).squeeze(1), returns[pick])
            self.optim.zero_grad()
            loss.backward()
            self.optim.step()
            time.sleep(0.12)
        self.updates += 1
        return loss.item()
