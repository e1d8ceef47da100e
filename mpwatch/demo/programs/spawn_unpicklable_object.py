"""Pass a dataset to spawned workers that holds an object which cannot be pickled.

The error names the type of the object, a lambda, but not which attribute of the dataset holds it:
`config["augment"][1].operation`.
"""

import pickle
import time
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from mpwatch.demo.bounds import begin, mended


def double(picture):
    return picture * 2


class Augment:
    def __init__(self, operation):
        self.operation = operation


class Pictures(Dataset):
    def __init__(self):
        self.pixels = torch.zeros(100, 8, 8)
        self.config: dict[str, Any] = {
            "size": 8,
            "augment": [
                Augment(torch.flip),
                Augment(double if mended() else lambda picture: picture * 2),
            ],
        }

    def __len__(self):
        return len(self.pixels)

    def __getitem__(self, index):
        return self.config["augment"][1].operation(self.pixels[index])


def report_ready():
    print("ready", flush=True)
    return True


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    loader = DataLoader(
        Pictures(), num_workers=1, persistent_workers=True, multiprocessing_context="spawn"
    )
    ready = False
    while time.monotonic() < until_s:
        try:
            for _batch in loader:
                ready = ready or report_ready()
                time.sleep(0.1)
        except (AttributeError, TypeError, pickle.PicklingError) as error:
            print(f"cannot start the loader: {error}", flush=True)
        ready = ready or report_ready()
        time.sleep(2)


if __name__ == "__main__":
    main()
