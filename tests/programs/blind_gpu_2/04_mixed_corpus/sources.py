import random

import torch


class TextSource:
    def __init__(self, name, min_len, max_len, vocab, seed):
        self.name, self.min_len, self.max_len, self.vocab = name, min_len, max_len, vocab
        self.rng = random.Random(seed)
        self.gen = torch.Generator().manual_seed(seed)

    def draw(self):
        n = self.rng.randint(self.min_len, self.max_len)
        return torch.randint(1, self.vocab, (n,), generator=self.gen)


class InterleavedCorpus:
    """Alternates between sources so that a global batch holds equal numbers of each."""

    def __init__(self, sources):
        self.sources = sources

    def global_batch(self, size):
        return [self.sources[i % len(self.sources)].draw() for i in range(size)]


def pad(samples):
    width = max(len(s) for s in samples)
    out = torch.zeros(len(samples), width, dtype=torch.long)
    for row, s in zip(out, samples):
        row[:len(s)] = s
    return out
