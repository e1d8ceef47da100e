"""A DataLoader training in its variants: start method, sharing strategy, persistent or not."""

import argparse
import sys
import time

import torch
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, Dataset

from mpwatch.demo.bounds import begin


class Samples(Dataset):
    def __len__(self) -> int:
        return 4000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        time.sleep(0.0005)
        return torch.randn(32), torch.tensor(index % 2)


def train(model: nn.Module, loader: DataLoader, until_s: float) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = 0
    while time.monotonic() < until_s:
        for features, labels in loader:
            loss = nn.functional.cross_entropy(model(features), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.03)
            step += 1
            if step == 10:
                print("ready", flush=True)
            if time.monotonic() > until_s:
                return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--method", choices=("fork", "spawn", "forkserver"), default="fork")
    parser.add_argument("--strategy", default="file_descriptor")
    parser.add_argument("--persistent", action="store_true")
    options, sys.argv[1:] = parser.parse_known_args()
    seconds = begin(__doc__)
    mp.set_sharing_strategy(options.strategy)
    loader = DataLoader(
        Samples(),
        batch_size=20,
        shuffle=True,
        num_workers=2,
        multiprocessing_context=options.method,
        persistent_workers=options.persistent,
    )
    train(nn.Linear(32, 2), loader, time.monotonic() + seconds)


if __name__ == "__main__":
    main()
