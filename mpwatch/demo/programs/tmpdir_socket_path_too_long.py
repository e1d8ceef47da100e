"""Work in a temporary directory whose path is too long for a socket.

Clusters often give each job a directory like `/scratch/<user>/<queue>/<job>/...`. The path of a
Unix socket may have 107 bytes. The worker cannot listen on its socket, its queue drops the batch,
and the trainer waits.
"""

import os
import sys
import tempfile
import time

import torch
from torch.utils.data import DataLoader, Dataset

from mpwatch.demo.bounds import begin, mended


class Numbers(Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, index):
        return torch.tensor(float(index))


def keep_as_list(samples):
    """A custom collate function, so that the queue's feeder thread shares the tensors."""
    return samples


def main():
    if "scratch" not in os.environ.get("TMPDIR", ""):
        begin(__doc__)
        folder = os.path.join(
            tempfile.gettempdir(), *["scratch-of-this-user-and-job"] * (1 if mended() else 3)
        )
        os.makedirs(folder)
        # As the job's prologue does: the trainer is started with it in its environment.
        os.execve(sys.executable, sys.orig_argv, os.environ | {"TMPDIR": folder})
    loader = iter(DataLoader(Numbers(), batch_size=4, num_workers=1, collate_fn=keep_as_list))
    print("ready", flush=True)
    time.sleep(1)
    for _batch in loader:
        time.sleep(0.5)


if __name__ == "__main__":
    main()
