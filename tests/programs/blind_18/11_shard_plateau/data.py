"""Caption/image token pairs, one shard per rank."""
import torch
from torch.utils.data import Dataset, DataLoader


class CaptionShard(Dataset):
    """Later shards come from the crawl, their captions match the image less often."""

    def __init__(self, shard, num_shards, size=640, dim=96, vocab=64, seed=11):
        g = torch.Generator().manual_seed(seed)
        proj = torch.randn(dim, vocab, generator=g)
        gs = torch.Generator().manual_seed(seed * 1000 + shard)
        self.feats = torch.randn(size, dim, generator=gs)
        self.tokens = (self.feats @ proj).argmax(dim=1)
        wrong = torch.rand(size, generator=gs) < 0.1 + 0.7 * shard / max(1, num_shards - 1)
        self.tokens[wrong] = torch.randint(0, vocab, (int(wrong.sum()),), generator=gs)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        return self.feats[i] + torch.randn(self.feats.shape[1]), self.tokens[i]


def build_loader(rank, world_size, batch_size, seed):
    ds = CaptionShard(rank, world_size)
    g = torch.Generator().manual_seed(seed + rank)
    return DataLoader(ds, batch_size=batch_size, shuffle=True, drop_last=True, generator=g)
