import numpy as np
import torch


class CurriculumBatches:
    """Batches of utterances sorted by length, the same number and similar lengths on every rank."""

    def __init__(self, args, rank, ranks, features=26):
        rng = np.random.default_rng(17)
        spread = rng.beta(1.3, 1.6, args.utterances)
        frames = np.sort((args.min_frames + spread * (args.max_frames - args.min_frames)).astype(int))
        usable = len(frames) // (args.train_batch_size * ranks) * args.train_batch_size * ranks
        self.batches = frames[:usable].reshape(-1, ranks, args.train_batch_size)[:, rank]
        self.features = features

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        for i, lengths in enumerate(self.batches):
            g = torch.Generator().manual_seed(i)
            longest = int(lengths.max())
            x = torch.randn(len(lengths), longest, self.features, generator=g)
            labels = [max(2, int(n) // 16) for n in lengths]
            targets = torch.randint(1, 28, (sum(labels),), generator=g)
            yield x, torch.tensor(lengths), targets, torch.tensor(labels)
