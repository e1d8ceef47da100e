"""Vocabulary object and the per-process tokeniser state."""
from collections import Counter

import torch

_STATE = {}


class Vocabulary:
    def __init__(self, counter, size):
        self.itos = ["<unk>"] + [w for w, _ in counter.most_common(size - 1)]
        self.stoi = {w: i for i, w in enumerate(self.itos)}

    @classmethod
    def build(cls, lines, size=800):
        return cls(Counter(w for line in lines for w in line.split()), size)

    def encode(self, line):
        return [self.stoi.get(w, 0) for w in line.split()]


def init_worker(path):
    torch.set_num_threads(1)
    bundle = torch.load(path)
    _STATE["vocab"] = bundle["vocab"]
    _STATE["weights"] = bundle["idf"]


def encode_block(lines):
    vocab, idf = _STATE["vocab"], _STATE["weights"]
    out = torch.zeros(len(lines), len(idf))
    for r, line in enumerate(lines):
        ids = torch.tensor(vocab.encode(line))
        out[r].index_add_(0, ids, idf[ids])
    return out.numpy()
