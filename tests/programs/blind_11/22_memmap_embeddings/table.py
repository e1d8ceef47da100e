import numpy as np
import torch
from torch.utils.data import Dataset


def resident_mb():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096 / 2 ** 20


def build_table(path, rows, dim, chunk=5000):
    rng = np.random.default_rng(0)
    block = rng.standard_normal((chunk, dim), dtype=np.float32)
    with open(path, "wb") as f:
        for start in range(0, rows, chunk):
            block[:, 0] = np.sign(rng.standard_normal(chunk)) * 3
            block[:min(chunk, rows - start)].tofile(f)


class MappedTable(Dataset):
    """Contiguous batches out of a float32 table; nothing is read before it is asked for."""

    def __init__(self, path, dim, stride):
        self.path, self.dim, self.stride = path, dim, stride
        self.rows = np.memmap(path, dtype=np.float32, mode="r").reshape(-1, dim)

    def __len__(self):
        return len(self.rows) // self.stride

    def __getitem__(self, index):
        block = self.rows[index * self.stride:(index + 1) * self.stride]
        x = torch.from_numpy(np.array(block))
        return x, (x[:, 0] > 0).long(), resident_mb()
