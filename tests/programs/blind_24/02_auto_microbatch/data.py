import numpy as np
import torch


class DocStream:
    """Documents of log-normal length; every rank reads its own split of the corpus."""

    def __init__(self, rank, vocab=256, max_len=640, seed=22):
        self.rng = np.random.default_rng(seed * 100 + rank)
        self.vocab, self.max_len = vocab, max_len

    def _doc(self):
        n = int(np.clip(self.rng.lognormal(3.9, 0.55), 8, self.max_len))
        return self.rng.integers(1, self.vocab, n)

    def batch(self, size):
        docs = [self._doc() for _ in range(size)]
        width = max(len(d) for d in docs)
        out = np.zeros((size, width + 1), dtype=np.int64)
        for i, d in enumerate(docs):
            out[i, :len(d)] = d
        return torch.from_numpy(out)
