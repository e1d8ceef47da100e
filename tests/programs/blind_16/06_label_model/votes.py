import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class VoteMatrix(Dataset):
    """Votes of the labeling functions for each token of a sequence; 0 means abstain."""

    def __init__(self, n_sequences, length, n_functions, n_classes):
        self.n_sequences, self.length = n_sequences, length
        self.n_functions, self.n_classes = n_functions, n_classes
        self.accuracy = np.linspace(0.55, 0.9, n_functions)

    def __len__(self):
        return self.n_sequences

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        truth = rng.integers(1, self.n_classes + 1, size=self.length)
        votes = rng.integers(1, self.n_classes + 1, size=(self.length, self.n_functions))
        right = rng.random(votes.shape) < self.accuracy
        votes = np.where(right, truth[:, None], votes)
        votes[rng.random(votes.shape) < 0.4] = 0
        return torch.from_numpy(votes)


def make_loader(n_sequences, length, n_functions, n_classes, batch_size, workers):
    data = VoteMatrix(n_sequences, length, n_functions, n_classes)
    return DataLoader(data, batch_size=batch_size, num_workers=workers)
