import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class PixelCritic(nn.Module):
    def __init__(self, n_actions, gamma=0.98, eps=0.2):
        super().__init__()
        self.n_actions, self.gamma, self.eps = n_actions, gamma, eps
        self.net = nn.Sequential(nn.Conv2d(4, 8, 8, stride=4), nn.ReLU(), nn.Conv2d(8, 16, 4, stride=2), nn.ReLU(),
                                 nn.Flatten(), nn.Linear(16 * 9 * 9, 64), nn.ReLU(), nn.Linear(64, n_actions))
        self.opt = torch.optim.Adam(self.net.parameters(), lr=3e-4)

    @torch.no_grad()
    def act(self, obs):
        if np.random.rand() < self.eps:
            return np.random.randint(0, self.n_actions, len(obs))
        return self.net(torch.from_numpy(obs).float() / 255).argmax(1).numpy()

    def update(self, batch):
        obs, nxt, act, rew, done = batch
        with torch.no_grad():
            target = rew + self.gamma * (1 - done) * self.net(nxt.float() / 255).max(1).values
        q = self.net(obs.float() / 255).gather(1, act[:, None])[:, 0]
        loss = F.smooth_l1_loss(q, target)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()
