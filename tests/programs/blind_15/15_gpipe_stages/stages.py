import torch.nn.functional as F
from torch import nn


class EmbedStage(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.block = nn.TransformerEncoderLayer(dim, 4, 2 * dim, batch_first=True)

    def forward(self, ids):
        return self.block(self.emb(ids))


class MiddleStage(nn.Module):
    def __init__(self, dim, layers=2):
        super().__init__()
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(dim, 4, 2 * dim, batch_first=True)
                                    for _ in range(layers))

    def forward(self, h):
        for b in self.blocks:
            h = b(h)
        return h


class HeadStage(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.block = nn.TransformerEncoderLayer(dim, 4, 2 * dim, batch_first=True)
        self.head = nn.Linear(dim, vocab)

    def forward(self, h, target):
        return F.cross_entropy(self.head(self.block(h)).flatten(0, 1), target.flatten())


def build_stage(rank, world_size, args):
    if rank == 0:
        return EmbedStage(args.vocab, args.dim)
    if rank == world_size - 1:
        return HeadStage(args.vocab, args.dim)
    return MiddleStage(args.dim)
