import torch
from torch import nn


class TinyLM(nn.Module):
    def __init__(self, vocab=256, width=96):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, vocab)

    def forward(self, ids, hidden=None):
        out, hidden = self.rnn(self.embed(ids), hidden)
        return self.head(out), hidden

    def log_probs(self, ids):
        logits, _ = self(ids[:, :-1])
        return torch.log_softmax(logits, -1).gather(-1, ids[:, 1:, None])[..., 0]
