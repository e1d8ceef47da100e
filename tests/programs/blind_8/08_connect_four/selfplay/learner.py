import logging
import time

import torch
from torch import nn

log = logging.getLogger("alpha")


class Learner:
    def __init__(self, lr):
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(126, 128), nn.ReLU(), nn.Linear(128, 1), nn.Tanh())
        self.opt = torch.optim.Adam(self.net.parameters(), lr=lr)

    def train(self, trajectories, steps):
        loss = torch.tensor(0.0)
        for step in range(steps):
            boards, outcome = trajectories.get()
            for _ in range(4):
                self.opt.zero_grad()
                loss = (self.net(torch.from_numpy(boards)) - outcome).pow(2).mean()
                loss.backward()
                self.opt.step()
            time.sleep(0.1)
            if step % 10 == 0:
                log.info("step %d loss %.4f", step, loss.item())
        return loss.item()
