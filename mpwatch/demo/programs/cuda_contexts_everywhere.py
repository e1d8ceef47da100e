"""Make a CUDA context in every DataLoader worker.

The dataset moves its samples to the GPU in the workers, so each of them takes some hundred MiB of
GPU memory for its context.
"""

import time

import torch
from torch.utils.data import DataLoader, Dataset

from mpwatch.demo.bounds import begin, mended


class Samples(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        time.sleep(0.01)
        return torch.ones(64, device="cpu" if mended() else "cuda")


def main():
    until_s = time.monotonic() + begin(__doc__)
    model = torch.nn.Linear(64, 64).to("cuda")
    loader = DataLoader(Samples(), batch_size=8, num_workers=2, multiprocessing_context="spawn")
    for step, batch in enumerate(loader):
        model(batch.to("cuda"))
        if step == 4:
            print("ready", flush=True)
        if time.monotonic() > until_s:
            return


if __name__ == "__main__":
    main()
