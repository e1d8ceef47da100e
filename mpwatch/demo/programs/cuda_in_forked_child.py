"""Use CUDA in a child that was forked after its parent had used CUDA.

A dataset moves its samples to the GPU in its workers, which are forked by default, and main has put
the model there already.
"""

import time

import torch
from torch.utils.data import DataLoader, Dataset

from mpwatch.demo.bounds import begin, mended


class Samples(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        return torch.tensor([float(index)], device="cpu" if mended() else "cuda")


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    model = torch.nn.Linear(1, 1).to("cuda")
    print("ready", flush=True)
    time.sleep(5)  # in place of the first epoch, without workers
    try:
        for batch in DataLoader(Samples(), batch_size=8, num_workers=2):
            model(batch.to("cuda"))
            time.sleep(0.1)
            if time.monotonic() > until_s:
                return
    except RuntimeError as error:
        print(f"cannot load: {str(error).splitlines()[-1]}", flush=True)
        time.sleep(max(0, until_s - time.monotonic()))


if __name__ == "__main__":
    main()
