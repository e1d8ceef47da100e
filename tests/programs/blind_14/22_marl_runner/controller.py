import torch
from torch import nn


class RNNAgent(nn.Module):
    def __init__(self, obs_dim, hidden, actions):
        super().__init__()
        self.fc1 = nn.Linear(obs_dim + actions, hidden)
        self.rnn = nn.GRUCell(hidden, hidden)
        self.fc2 = nn.Linear(hidden, actions)

    def forward(self, inputs, hidden):
        x = torch.relu(self.fc1(inputs))
        h = self.rnn(x, hidden)
        return self.fc2(h), h


class BasicMAC:
    """Multi-agent controller with shared parameters."""

    def __init__(self, agent, hidden, actions):
        self.agent, self.hidden_dim, self.n_actions = agent, hidden, actions

    def init_hidden(self, rows):
        self.hidden_states = torch.zeros(rows, self.hidden_dim)

    def forward(self, obs, last_actions):
        logits, self.hidden_states = self.agent(torch.cat([obs, last_actions], -1), self.hidden_states)
        return logits

    def select_actions(self, obs, last_actions, temperature):
        logits = self.forward(obs, last_actions)
        return nn.functional.gumbel_softmax(logits, tau=temperature, hard=True)
