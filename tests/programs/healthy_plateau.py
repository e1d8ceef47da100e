"""A training whose workers cache what they decode, until each has cached the whole dataset.

The rise slows down as fewer samples are new, and ends below the memory the job may use.
"""

import time

import torch
from torch.utils.data import DataLoader, Dataset

from mpwatch.demo.bounds import begin, may_limit, small_cgroup

LIMIT_MIB = 420
SAMPLES = 200


class Cached(Dataset):
    """A quarter of a MiB a sample."""

    def __init__(self) -> None:
        self.decoded: dict[int, torch.Tensor] = {}

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        index = int(torch.randint(SAMPLES, ()))
        if index not in self.decoded:
            self.decoded[index] = torch.full((1 << 16,), float(index)).clone()
        return self.decoded[index][:16].clone()


def main() -> None:
    seconds = begin(__doc__)
    if may_limit():
        small_cgroup("memory", LIMIT_MIB << 20)
    loader = DataLoader(Cached(), batch_size=4, num_workers=2, persistent_workers=True)
    until_s = time.monotonic() + seconds
    step = 0
    while time.monotonic() < until_s:
        for _batch in loader:
            step += 1
            if step == 4:
                print("ready", flush=True)
            time.sleep(0.05)


if __name__ == "__main__":
    main()
