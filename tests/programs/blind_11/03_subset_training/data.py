import random

import torch
from torch.utils.data import DataLoader, Dataset


class UtteranceDataset(Dataset):
    """The utterances of a random part of the speakers; those outside the length limits are dropped."""

    def __init__(self, speakers, per_speaker, fraction, min_len, max_len, feat_dim=40, classes=12):
        generator = torch.Generator().manual_seed(1234)
        lengths = torch.randint(20, 400, (speakers * per_speaker,), generator=generator).tolist()
        chosen = [s for s in range(speakers) if random.random() < fraction]
        self.items = [i for s in chosen for i in range(s * per_speaker, (s + 1) * per_speaker)
                      if min_len <= lengths[i] <= max_len]
        self.feat_dim = feat_dim
        self.classes = classes

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        item = self.items[index]
        generator = torch.Generator().manual_seed(item)
        feats = torch.randn(100, self.feat_dim, generator=generator)
        return feats, item % self.classes


def shard(dataset, rank, world_size):
    items = dataset.items
    dataset.items = items[rank::world_size]
    return dataset


def build_loader(args, rank, world_size):
    dataset = UtteranceDataset(args.speakers, args.per_speaker, args.fraction, args.min_len, args.max_len)
    dataset = shard(dataset, rank, world_size)
    return DataLoader(dataset, batch_size=args.batch_size, shuffle=True, drop_last=True)
