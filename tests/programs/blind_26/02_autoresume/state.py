import dataclasses

import torch
from torch import nn


class CharModel(nn.Module):
    def __init__(self, vocab=96, width=96):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, vocab)

    def forward(self, tokens):
        hidden, _ = self.rnn(self.embed(tokens))
        return self.head(hidden)


@dataclasses.dataclass
class Timestamp:
    batch: int = 0
    sample: int = 0

    def advance(self, samples):
        self.batch += 1
        self.sample += samples


class State:
    """All that a checkpoint holds."""

    def __init__(self, model, optimizer):
        self.model = model
        self.optimizer = optimizer
        self.timestamp = Timestamp()
        self.best_metric = float("inf")

    def state_dict(self):
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
                "timestamp": dataclasses.asdict(self.timestamp), "best_metric": self.best_metric,
                "rng": torch.get_rng_state()}

    def load_state_dict(self, saved):
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.timestamp = Timestamp(**saved["timestamp"])
        self.best_metric = saved["best_metric"]
        torch.set_rng_state(saved["rng"])
