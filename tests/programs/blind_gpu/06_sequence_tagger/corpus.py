import time

import torch


class Corpus:
    """Sentences grouped by length; words decide the tag, with some noise."""

    def __init__(self, vocab_size=5000, num_tags=16, batch_size=24, seed=0, read_time=0.1):
        self.vocab_size, self.num_tags, self.batch_size = vocab_size, num_tags, batch_size
        self.gen = torch.Generator().manual_seed(seed)
        self.read_time = read_time

    def batches(self, count):
        for _ in range(count):
            time.sleep(self.read_time)
            length = int(torch.randint(18, 30, (1,), generator=self.gen))
            words = torch.randint(self.vocab_size, (self.batch_size, length), generator=self.gen)
            noise = torch.randint(self.num_tags, words.shape, generator=self.gen)
            keep = torch.rand(words.shape, generator=self.gen) < 0.9
            yield words, torch.where(keep, words % self.num_tags, noise)
