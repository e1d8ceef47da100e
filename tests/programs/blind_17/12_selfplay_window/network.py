from torch import nn


class PolicyValueNet(nn.Module):
    def __init__(self, board, hidden):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(2 * board * board, hidden), nn.ReLU(),
                                  nn.Linear(hidden, hidden), nn.ReLU())
        self.policy = nn.Linear(hidden, 4)
        self.value = nn.Linear(hidden, 1)

    def forward(self, obs):
        h = self.body(obs)
        return self.policy(h), self.value(h).squeeze(-1)
