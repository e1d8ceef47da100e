import logging
import resource

import torch
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("bank")


class Volumes(Dataset):
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        gen = torch.Generator().manual_seed(i)
        return {"id": torch.tensor(i), "features": torch.randn(64, generator=gen), "mask": torch.ones(8)}


class BankBuilder:
    def __init__(self, size, workers, max_files):
        self.size, self.workers, self.max_files = size, workers, max_files

    def run(self, ready, progress):
        logging.basicConfig(level=logging.INFO, format="%(asctime)s builder %(message)s")
        torch.set_num_threads(1)
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (self.max_files, hard))
        bank = []
        for batch in DataLoader(Volumes(self.size), batch_size=4, num_workers=self.workers):
            bank.append(batch)
            progress.value = len(bank)
        features = torch.cat([b["features"] for b in bank])
        log.info("bank of %s ready", tuple(features.shape))
        ready.set()
