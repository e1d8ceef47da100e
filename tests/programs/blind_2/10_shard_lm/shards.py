import torch
from torch.utils.data import IterableDataset

# number of sequences in each file of the corpus
SHARD_SIZES = [640, 640, 640, 640, 640, 212, 640]


class ShardedCorpus(IterableDataset):
    """Every rank reads the shards i with i % world_size == rank, one sequence after another."""

    def __init__(self, rank, world_size, vocab=512, seq_len=48):
        self.rank, self.world_size = rank, world_size
        self.vocab, self.seq_len = vocab, seq_len

    def __iter__(self):
        for i in range(self.rank, len(SHARD_SIZES), self.world_size):
            g = torch.Generator().manual_seed(i)
            for _ in range(SHARD_SIZES[i]):
                yield torch.randint(self.vocab, (self.seq_len + 1,), generator=g)
