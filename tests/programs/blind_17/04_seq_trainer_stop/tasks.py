import os
import random

import numpy as np
import torch
from torch import nn


class RecurrentLM(nn.Module):
    def __init__(self, vocab, dim=96, layers=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, num_layers=layers, batch_first=True)
        self.out = nn.Linear(dim, vocab)

    def forward(self, tokens):
        return self.out(self.rnn(self.embed(tokens))[0])


class LanguageModelingTask:
    """Token blocks of a toy corpus; the first worker encodes it and the others read what it wrote."""

    def __init__(self, args, rank):
        self.args = args
        self.rank = rank
        self.cache = os.path.join(args.save_dir, "data-bin")
        self.splits = {}
        self.vocab = 512
        torch.set_num_threads(1)
        torch.manual_seed(args.seed + rank)

    def _synthesize(self, lines, seed):
        rng = random.Random(seed)
        weights = [1.0 / (i + 1) for i in range(self.vocab)]
        for _ in range(lines):
            yield rng.choices(range(self.vocab), weights=weights, k=rng.randint(20, 120))

    def build_cache(self):
        os.makedirs(self.cache, exist_ok=True)
        for split, lines in (("train", 12000), ("valid", 400)):
            tokens = np.concatenate([np.asarray(line, dtype=np.uint16)
                                     for line in self._synthesize(lines, len(split))])
            np.save(os.path.join(self.cache, split + ".npy"), tokens)
        self.load_dataset("train")
        self.load_dataset("valid")

    def load_dataset(self, split):
        if split in self.splits:
            return
        tokens = np.load(os.path.join(self.cache, split + ".npy"))
        size = self.args.tokens_per_sample
        blocks = [tokens[i: i + size + 1].tolist() for i in range(0, len(tokens) - size - 1, size)]
        order = sorted(range(len(blocks)), key=lambda i: (len(set(blocks[i])), blocks[i]))
        self.splits[split] = [blocks[i] for i in order]

    def build_model(self):
        return RecurrentLM(self.vocab)

    def epoch_batches(self, split, epoch, batch_size):
        blocks = self.splits[split]
        order = list(range(len(blocks)))
        random.Random(epoch).shuffle(order)
        mine = order[self.rank:: self.args.world_size]
        for i in range(0, len(mine) - batch_size + 1, batch_size):
            yield torch.tensor([blocks[j] for j in mine[i: i + batch_size]], dtype=torch.long)
