import random


class DocumentSource:
    """Documents as lists of token numbers, with a long tail of rare tokens."""

    def __init__(self, batch, vocabulary=200000, length=64, seed=11):
        self.rng = random.Random(seed)
        self.batch = batch
        self.vocabulary = vocabulary
        self.length = length
        self.count = 0

    def _token(self):
        return min(self.vocabulary - 1, int(self.rng.paretovariate(0.5)))

    def next_task(self):
        self.count += 1
        docs = [[self._token() for _ in range(self.length)] for _ in range(self.batch)]
        return self.count, docs
