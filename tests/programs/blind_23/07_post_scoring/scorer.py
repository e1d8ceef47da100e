from collections import defaultdict

import numpy as np
import torch
from torch import nn


class WordVectors:
    """Word vectors of the vocabulary; words without a vector count as zero."""

    def __init__(self, vocabulary, dim, seed):
        rng = np.random.default_rng(seed)
        self.dim = dim
        self.table = defaultdict(lambda: np.zeros(dim, np.float32))
        for i in range(vocabulary):
            self.table[f"w{i}"] = rng.normal(0, 1 / dim ** 0.5, dim).astype(np.float32)

    def lookup(self, tokens):
        return np.stack([self.table[t] for t in tokens])

    def coverage(self, tokens):
        return sum(bool(self.table[t].any()) for t in tokens) / len(tokens)


class Tokenizer:
    def __init__(self, max_tokens=64):
        self.max_tokens = max_tokens

    def __call__(self, post):
        return post.strip().split()[:self.max_tokens]


class TopicScorer:
    def __init__(self, vocabulary, dim, topics, seed):
        torch.manual_seed(seed)
        self.tokenizer = Tokenizer()
        self.vectors = WordVectors(vocabulary, dim, seed)
        self.classifier = nn.Sequential(nn.Linear(dim, 64), nn.ReLU(), nn.Linear(64, topics)).eval()
        self.minimum_coverage = 0.25

    def embed(self, post):
        tokens = self.tokenizer(post)
        if self.vectors.coverage(tokens) < self.minimum_coverage:
            return None
        return self.vectors.lookup(tokens).mean(axis=0)

    @torch.inference_mode()
    def score(self, posts):
        rows = [self.embed(p) for p in posts]
        rows = [r for r in rows if r is not None]
        if not rows:
            return torch.zeros(0, dtype=torch.long)
        return self.classifier(torch.from_numpy(np.stack(rows))).argmax(dim=1)
