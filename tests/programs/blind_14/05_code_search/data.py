import torch
from torch.utils.data import Dataset


class PairDataset(Dataset):
    """Synthetic (code, description) pairs that share a part of their tokens."""

    def __init__(self, n, length, vocab=2000, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.code = torch.randint(vocab, (n, length), generator=g)
        self.text = torch.randint(vocab, (n, length // 2), generator=g)
        self.text[:, ::2] = self.code[:, : self.text.shape[1]][:, ::2]

    def __len__(self):
        return len(self.code)

    def __getitem__(self, i):
        return self.code[i], self.text[i]
