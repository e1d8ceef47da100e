"""Hold the last hundred batches: descriptors and mappings rise, and then stay where they are."""

import collections
import time

import torch
from torch.utils.data import DataLoader, Dataset

from mpwatch.demo.bounds import begin


class Samples(Dataset):
    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.randn(64)


def main() -> None:
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    window: collections.deque[torch.Tensor] = collections.deque(maxlen=100)
    for step, batch in enumerate(DataLoader(Samples(), batch_size=4, num_workers=2)):
        window.append(batch)
        if step == 40:
            print("ready", flush=True)
        if time.monotonic() > until_s:
            break
        time.sleep(0.03)


if __name__ == "__main__":
    main()
