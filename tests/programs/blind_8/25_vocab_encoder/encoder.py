import random
import time

import numpy as np


class DocumentSource:
    def __init__(self, documents, vocab_size, seed=8):
        self.documents = documents
        self.vocab_size = vocab_size
        self.seed = seed

    def __iter__(self):
        rng = random.Random(self.seed)
        for _ in range(self.documents):
            yield " ".join(f"piece{rng.randrange(self.vocab_size)}" for _ in range(300))


class VocabEncoder:
    def __init__(self, size):
        self.ids = {f"piece{i}": i for i in range(size)}
        self.counts = {i: (i * 7919) % 1000 for i in range(size)}

    def encode(self, text):
        ids = [self.ids.get(word, 0) for word in text.split()]
        return np.array([i for i in ids if self.counts[i] > 2], dtype=np.int32)
