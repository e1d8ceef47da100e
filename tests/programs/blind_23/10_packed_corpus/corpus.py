import numpy as np


def pack_corpus(path, mib, seed):
    """Writes all documents behind each other into one file (here: made up from repeated paragraphs)."""
    rng = np.random.default_rng(seed)
    words = [bytes(rng.integers(97, 123, rng.integers(2, 9), dtype=np.uint8)) for _ in range(3000)]
    paragraph = b" ".join(words[i] for i in rng.zipf(1.4, 220000) % len(words))
    paragraph = (paragraph * 2)[:2 ** 20]
    with open(path, "wb") as out:
        for n in range(mib):
            turn = (n * 7919) % len(paragraph)
            out.write(paragraph[turn:] + paragraph[:turn])
    return path


class PackedCorpus:
    """A part of the packed file, block by block; every epoch begins at another place of the part."""

    def __init__(self, path, block, part, parts, seed):
        self.data = np.memmap(path, dtype=np.uint8, mode="r")
        self.block = block
        blocks = len(self.data) // block
        self.own = np.array_split(np.arange(blocks), parts)[part]
        self.seed = seed
        self.epoch = -1
        self.order = iter(())

    def next_block(self):
        for index in self.order:
            raw = self.data[index * self.block:(index + 1) * self.block]
            if raw[::4096].max() == 0:
                continue
            return raw
        self.epoch += 1
        rng = np.random.default_rng([self.seed, self.epoch])
        self.order = iter(np.roll(self.own, rng.integers(len(self.own))))
        return self.next_block()
