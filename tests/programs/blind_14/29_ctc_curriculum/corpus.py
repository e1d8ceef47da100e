"""Utterances, sorted by duration in the first epochs (short ones first)."""
import numpy as np
import torch
from torch.utils.data import Dataset, Sampler


class Corpus(Dataset):
    def __init__(self, utterances, mel, seed):
        rng = np.random.default_rng(seed)
        seconds = np.clip(rng.gamma(3.0, 1.5, utterances), 0.6, 14.0)
        self.frames = (seconds * 40).astype(int)
        self.mel = mel

    def __len__(self):
        return len(self.frames)

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(int(i))
        n = int(self.frames[i])
        return torch.randn(n, self.mel, generator=g), torch.randint(1, 28, (max(1, n // 8),), generator=g)


class CurriculumSampler(Sampler):
    """Batches of similar length; sorted epochs go from short to long, the others are shuffled."""

    def __init__(self, corpus, batch_size, sorted_epochs, seed):
        order = np.argsort(corpus.frames, kind="stable")
        usable = len(order) // batch_size * batch_size
        self.batches = order[:usable].reshape(-1, batch_size).tolist()
        self.sorted_epochs, self.epoch = sorted_epochs, 0
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        order = range(len(self.batches))
        if self.epoch >= self.sorted_epochs:
            order = self.rng.permutation(len(self.batches))
        self.epoch += 1
        return iter([self.batches[i] for i in order])


def collate(batch):
    xs, ys = zip(*batch)
    lengths = torch.tensor([len(x) for x in xs])
    targets = torch.tensor([len(y) for y in ys])
    return torch.nn.utils.rnn.pad_sequence(xs), lengths, torch.cat(ys), targets
