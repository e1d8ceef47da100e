"""Lose the main process to SIGKILL while its workers run.

A worker checks between two batches whether its parent still exists. These workers never do: their
batches are plain numbers, larger than a pipe holds, so each of them is blocked writing to a pipe
that no process reads any more.
"""

import os
import signal
import time

from torch.utils.data import DataLoader, Dataset

from mpwatch.demo.bounds import begin, mended

KILLED_AFTER_S = 6
SURVIVE_S = 40


class Sequences(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        return list(range(index, index + 40_000))


def main():
    seconds = begin(__doc__, outlive_s=SURVIVE_S)
    loader = DataLoader(Sequences(), batch_size=4, num_workers=2, collate_fn=list)
    batches = iter(loader)
    next(batches)
    print("ready", flush=True)
    time.sleep(min(KILLED_AFTER_S, seconds))
    if not mended():
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
