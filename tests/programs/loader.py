"""A DataLoader training: `loader.py WORKERS [METHOD] [--hook] [--batches N] [--pause S]`."""

from __future__ import annotations

import argparse
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Noise(Dataset[tuple[torch.Tensor, int]]):
    """Endless random pictures that take a little while to make."""

    def __init__(self, pause_s: float) -> None:
        self.pause_s = pause_s

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(self.pause_s)
        return torch.randn(3, 32, 32), index


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("workers", type=int)
    parser.add_argument("method", nargs="?", default="fork")
    parser.add_argument("--hook", action="store_true")
    parser.add_argument("--batches", type=int, default=1_000_000)
    parser.add_argument("--pause", type=float, default=0.005, help="seconds a picture takes")
    arguments = parser.parse_args()
    if arguments.hook:
        import mpwatch

        mpwatch.instrument()
    loader = DataLoader(
        Noise(arguments.pause),
        batch_size=4,
        num_workers=arguments.workers,
        multiprocessing_context=arguments.method,
        persistent_workers=True,
    )
    total = 0.0
    for number, (pictures, indices) in enumerate(loader):
        total += float(indices.sum()) + pictures.shape[0]
        if number == 2 * arguments.workers:
            print("ready", flush=True)
        if number >= arguments.batches:
            break
        time.sleep(0.01)
    print("sum", total, flush=True)


if __name__ == "__main__":
    main()
