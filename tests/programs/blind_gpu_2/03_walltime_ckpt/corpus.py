import random

import torch


class ShardIndex:
    """Character n-gram index of this node's shard, built when the job starts."""

    SHARD_DOCS = (2000, 26000, 9000, 14000)

    def __init__(self, rank, vocab=4096, doc_len=96):
        self.vocab = vocab
        self.rng = random.Random(rank)
        self.docs = []
        for _ in range(self.SHARD_DOCS[rank]):
            text = [self.rng.randrange(26) for _ in range(doc_len)]
            self.docs.append([(a * 31 + b * 7 + c) % vocab
                              for a, b, c in zip(text, text[1:], text[2:])])
        self.cursor = 0

    def batch(self, size):
        rows = []
        for _ in range(size):
            rows.append(self.docs[self.cursor % len(self.docs)])
            self.cursor += 1
        return torch.tensor(rows)

    def state(self):
        return {"cursor": self.cursor, "docs": len(self.docs)}
