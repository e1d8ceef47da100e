"""Hand a data set to spawned workers that holds something which cannot be pickled.

The error names the type of the thing, a lambda. Which of the data set's many attributes holds it,
it does not say: `config["augment"][1].operation`.
"""

import pickle
import time
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from mpwatch.demo.bounds import begin


class Augment:
    def __init__(self, operation):
        self.operation = operation


class Pictures(Dataset):
    def __init__(self):
        self.pixels = torch.zeros(100, 8, 8)
        self.config: dict[str, Any] = {
            "size": 8,
            "augment": [Augment(torch.flip), Augment(lambda picture: picture * 2)],
        }

    def __len__(self):
        return len(self.pixels)

    def __getitem__(self, index):
        return self.config["augment"][1].operation(self.pixels[index])


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    loader = DataLoader(Pictures(), num_workers=1, multiprocessing_context="spawn")
    ready = False
    while time.monotonic() < until_s:
        try:
            iter(loader)
        except (AttributeError, TypeError, pickle.PicklingError) as error:
            print(f"cannot start the loader: {error}", flush=True)
        if not ready:
            print("ready", flush=True)
            ready = True
        time.sleep(2)


if __name__ == "__main__":
    main()
