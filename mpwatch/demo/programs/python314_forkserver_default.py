"""Run a program written for fork where fork is no longer the default.

From Python 3.14 on, worker processes are started by a fork server on Linux, and their arguments are
pickled. This collate function is a lambda, which cannot be pickled.
"""

import pickle
import sys
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

from mpwatch.demo.bounds import begin, mended


def report_ready():
    print("ready", flush=True)
    return True


def main():
    seconds = begin(__doc__)
    if sys.version_info < (3, 14):
        print("this program needs Python 3.14, whose start method is forkserver", file=sys.stderr)
        sys.exit(2)
    until_s = time.monotonic() + seconds
    data = TensorDataset(torch.arange(100.0))
    loader = DataLoader(
        data, num_workers=1, collate_fn=list if mended() else lambda samples: samples
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
