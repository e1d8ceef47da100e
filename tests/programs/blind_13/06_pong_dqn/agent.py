import copy

import torch
from torch import nn

from replay_buffer import batch_experiences


class QNetwork(nn.Module):
    def __init__(self, actions=3):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(4, 8, 8, stride=4), nn.ReLU(),
            nn.Conv2d(8, 16, 4, stride=2), nn.ReLU(),
            nn.Flatten(), nn.Linear(16 * 81, 64), nn.ReLU(), nn.Linear(64, actions),
        )

    def forward(self, x):
        return self.net(x)


class DQNAgent:
    def __init__(self, gamma, target_update_interval, lr=1e-4):
        self.q = QNetwork()
        self.target = copy.deepcopy(self.q)
        self.optimizer = torch.optim.Adam(self.q.parameters(), lr=lr)
        self.gamma = gamma
        self.target_update_interval = target_update_interval
        self.updates = 0
        self.last_loss = None

    def update(self, experiences):
        batch = batch_experiences(experiences, self.gamma)
        q = self.q(batch["state"]).gather(1, batch["action"][:, None]).squeeze(1)
        with torch.no_grad():
            best = self.target(batch["next_state"]).max(1).values
        loss = nn.functional.smooth_l1_loss(q, batch["reward"] + batch["discount"] * best)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.last_loss = round(loss.item(), 5)
        self.updates += 1
        if self.updates % self.target_update_interval == 0:
            self.target.load_state_dict(self.q.state_dict())
