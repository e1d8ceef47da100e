"""Every rank owns whole shards of the corpus; the shards differ in their number of utterances."""
import torch

SHARDS = {0: [310, 290], 1: [420, 250], 2: [510, 480]}


class ShardedUtterances:
    def __init__(self, rank, batch_size, frames, mel, seed):
        self.counts = SHARDS[rank % len(SHARDS)]
        self.batch_size, self.frames, self.mel = batch_size, frames, mel
        self.gen = torch.Generator().manual_seed(seed + rank)

    def __len__(self):
        return sum(c // self.batch_size for c in self.counts)

    def __iter__(self):
        for count in self.counts:
            for _ in range(count // self.batch_size):
                y = torch.randint(0, 12, (self.batch_size,), generator=self.gen)
                x = torch.randn(self.batch_size, self.frames, self.mel, generator=self.gen)
                x[..., :12] += nn_one_hot(y)[:, None] * 0.5
                yield x, y


def nn_one_hot(y):
    return torch.nn.functional.one_hot(y, 12).float()
