import torch
from torch import nn


class QNetwork(nn.Module):
    def __init__(self, actions=6):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(4, 16, 8, 4), nn.ReLU(), nn.Conv2d(16, 16, 4, 2), nn.ReLU())
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(16 * 9 * 9, 64), nn.ReLU(), nn.Linear(64, actions))

    def forward(self, x):
        return self.head(self.conv(x.float() / 255))


class Learner:
    def __init__(self, gamma=0.99):
        self.q, self.target = QNetwork(), QNetwork()
        self.target.load_state_dict(self.q.state_dict())
        self.opt = torch.optim.Adam(self.q.parameters(), lr=3e-4)
        self.gamma, self.count = gamma, 0

    def update(self, batch):
        s, a, r, n, d = (torch.from_numpy(x) for x in batch)
        with torch.no_grad():
            y = r + self.gamma * (1 - d) * self.target(n).max(dim=1).values
        loss = nn.functional.smooth_l1_loss(self.q(s).gather(1, a[:, None])[:, 0], y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.count += 1
        if self.count % 50 == 0:
            self.target.load_state_dict(self.q.state_dict())
        return loss.item()
