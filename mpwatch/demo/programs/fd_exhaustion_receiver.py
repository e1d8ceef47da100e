"""Keep a tensor of every batch, until the process has no descriptor left.

Each tensor received from a worker uses one descriptor for as long as it exists. Collecting the
labels for later keeps all of them; `labels.clone()` would keep none.
"""

import resource
import time

import torch
from torch.utils.data import DataLoader, Dataset

from mpwatch.demo.bounds import begin, mended

OPEN_FILES = 256


class Samples(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        return torch.randn(64), torch.tensor(index % 10)


def main():
    seconds = begin(__doc__)
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
    until_s = time.monotonic() + seconds
    seen = []
    for step, (features, labels) in enumerate(DataLoader(Samples(), batch_size=16, num_workers=2)):
        features.mean()
        seen.append(labels.clone() if mended() else labels)
        if step == 20:
            print("ready", flush=True)
        if time.monotonic() > until_s:
            break
        time.sleep(0.2)


if __name__ == "__main__":
    main()
