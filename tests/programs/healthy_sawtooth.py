"""A training that keeps the labels of an epoch for its report, and frees them after it.

Every label kept is a descriptor, a mapping and a bit of `/dev/shm`: all three rise in a straight
line, again and again, and fall back.
"""

import resource
import time

import torch
from torch.utils.data import DataLoader, Dataset

from mpwatch.demo.bounds import begin

OPEN_FILES = 512


class Samples(Dataset):
    def __len__(self) -> int:
        return 16 * 60

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(64), torch.tensor(index % 10)


def main() -> None:
    seconds = begin(__doc__)
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
    until_s = time.monotonic() + seconds
    loader = DataLoader(Samples(), batch_size=16, num_workers=2, persistent_workers=True)
    epoch = 0
    while time.monotonic() < until_s:
        labels = []
        for features, of_batch in loader:
            features.mean()
            labels.append(of_batch)
            time.sleep(0.05)
        epoch += 1
        print(f"epoch {epoch}: {len(torch.cat(labels))} labels", flush=True)
        if epoch == 1:
            print("ready", flush=True)


if __name__ == "__main__":
    main()
