import time

import torch
from torch.utils.data import Dataset


class RecordDataset(Dataset):
    def __init__(self, records, rate):
        self.records = records
        self.delay = 1 / rate / 4

    def __len__(self):
        return self.records

    def __getitem__(self, i):
        time.sleep(self.delay)
        gen = torch.Generator().manual_seed(i)
        return {"key": i, "features": torch.randn(64, generator=gen)}
