import torch
from torch import nn


class Summarizer(nn.Module):
    """GRU encoder and decoder with dot attention."""

    def __init__(self, vocab=4000, dim=192):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.encoder = nn.GRU(dim, dim, batch_first=True)
        self.decoder = nn.GRUCell(dim, dim)
        self.out = nn.Linear(2 * dim, vocab)

    def encode(self, documents):
        memory, last = self.encoder(self.embed(documents))
        return memory, last[0]

    def step(self, tokens, hidden, memory):
        hidden = self.decoder(self.embed(tokens), hidden)
        weights = torch.softmax(torch.einsum("bd,btd->bt", hidden, memory), dim=-1)
        context = torch.einsum("bt,btd->bd", weights, memory)
        return torch.log_softmax(self.out(torch.cat([hidden, context], dim=-1)), dim=-1), hidden
