import torch
from torch import nn

from data import FEAT, VOCAB


class StatelessTransducer(nn.Module):
    def __init__(self, hidden=128):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(FEAT, hidden), nn.ReLU(), nn.Linear(hidden, hidden))
        self.predictor = nn.Embedding(VOCAB, hidden)
        self.joint = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.ReLU(), nn.Linear(hidden, VOCAB))

    def encode(self, x):
        return self.encoder(x)

    def join(self, enc, prev):
        return self.joint(torch.cat([enc, self.predictor(prev)], dim=-1))

    def forward(self, frames, prevs):
        return self.join(self.encode(frames), prevs)
