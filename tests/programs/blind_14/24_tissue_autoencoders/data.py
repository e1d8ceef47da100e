"""Count matrices per tissue."""
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, random_split

CELLS = {"liver": 1420, "lung": 1281, "kidney": 1068, "spleen": 1388}


@dataclass
class Tissue:
    name: str
    cells: int


class CellDataset(Dataset):
    def __init__(self, tissue, genes, seed):
        rng = np.random.default_rng(seed + sum(map(ord, tissue.name)))
        programs = rng.gamma(0.5, 1.0, size=(8, genes))
        usage = rng.dirichlet(np.ones(8), size=tissue.cells)
        self.counts = torch.from_numpy(rng.poisson(4 * usage @ programs).astype(np.float32))

    def __len__(self):
        return len(self.counts)

    def __getitem__(self, i):
        return self.counts[i]


def split_loaders(tissue, genes, train_size, batch_size, seed):
    dataset = CellDataset(tissue, genes, seed)
    n_train = int(np.ceil(train_size * len(dataset)))
    gen = torch.Generator().manual_seed(seed)
    train, val = random_split(dataset, [n_train, len(dataset) - n_train], generator=gen)
    return DataLoader(train, batch_size, shuffle=True, generator=gen), DataLoader(val, batch_size)
