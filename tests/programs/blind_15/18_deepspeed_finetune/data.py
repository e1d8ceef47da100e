import torch
from torch.utils.data import Dataset


class Prompts(Dataset):
    """Token sequences with a bit of structure, so that there is something to learn."""

    def __init__(self, n, length, vocab, seed=0):
        g = torch.Generator().manual_seed(seed)
        start = torch.randint(vocab, (n, 1), generator=g)
        stride = torch.randint(1, 7, (n, 1), generator=g)
        self.tokens = (start + stride * torch.arange(length + 1)) % vocab

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        return self.tokens[i, :-1], self.tokens[i, 1:]
