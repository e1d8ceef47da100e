import random

LATIN = "the of and data model river house green winter number letter stone paper window garden".split()
CYRILLIC = "дом река зима число письмо камень бумага окно сад модель данные зелёный".split()


class ShardSource:
    """Deterministic stand-in for the crawl shards on the file server."""

    def __init__(self, shards, docs, first_mixed, seed):
        self.shards, self.docs, self.first_mixed = shards, docs, first_mixed
        self.seed = seed

    def __len__(self):
        return self.shards

    def __iter__(self):
        for index in range(self.shards):
            yield index, self._documents(index)

    def _documents(self, index):
        rng = random.Random(self.seed * 1000 + index)
        for i in range(self.docs):
            mixed = index >= self.first_mixed and i > self.docs // 3 and rng.random() < 0.05
            words = CYRILLIC if mixed else LATIN
            yield " ".join(rng.choices(words, k=rng.randint(8, 30)))
