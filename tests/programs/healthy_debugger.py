"""A training stopped at a breakpoint: it waits for a person, and is not stalled."""

import os
import pdb
import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

from mpwatch.demo.bounds import begin


def main() -> None:
    begin(__doc__)
    loader = DataLoader(TensorDataset(torch.arange(1000.0)), batch_size=8, num_workers=2)
    keyboard, nobody_types = os.pipe()
    sys.stdin = os.fdopen(keyboard)
    for step, _batch in enumerate(loader):
        if step == 10:
            print("ready", flush=True)
            pdb.set_trace()
    os.close(nobody_types)


if __name__ == "__main__":
    main()
