"""Lose the thread that pins batches.

That thread unpickles the batches, and any error in doing so ends it; the main process only notices
that the thread has ended. The program needs no accelerator: it replaces the accelerator's memory
functions, and uses torch's own threads and queues.
"""

import resource
import time

import torch
from torch.utils.data import DataLoader, Dataset

from mpwatch.demo.bounds import begin, mended, simulate_accelerator

OPEN_FILES = 128


class Samples(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        return torch.randn(16), torch.tensor(index)


def main():
    seconds = begin(__doc__)
    simulate_accelerator()
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
    until_s = time.monotonic() + seconds
    loader = DataLoader(Samples(), batch_size=8, num_workers=2, pin_memory=True)
    kept = []
    for step, batch in enumerate(loader):
        kept.append([part.clone() for part in batch] if mended() else batch)
        if step == 4:
            print("ready", flush=True)
        if time.monotonic() > until_s:
            break
        time.sleep(0.3)


if __name__ == "__main__":
    main()
