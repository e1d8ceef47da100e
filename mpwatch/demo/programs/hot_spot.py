"""Measure each text again in each epoch, in the main process, to sort the batches by length.

The sampler runs in the main process, not in the loader workers: they have nothing to do meanwhile,
and the lengths are the same in each epoch.
"""

import time

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from mpwatch.demo.bounds import begin, mended

TEXTS = 3_000
LETTERS = 1_200


def letters(text):
    count = 0
    for each in text:
        if each.isalpha():
            count += 1
    return count


class Texts(Dataset):
    def __init__(self):
        self.texts = ["ab c" * (LETTERS // 4 + number % 7) for number in range(TEXTS)]

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        return torch.full((64,), float(index))


class ByLength(Sampler):
    def __init__(self, texts):
        self.texts = texts
        self.lengths = self.measured() if mended() else None

    def measured(self):
        return [letters(text) for text in self.texts]

    def __len__(self):
        return len(self.texts)

    def __iter__(self):
        lengths = self.lengths or self.measured()
        yield from sorted(range(len(lengths)), key=lengths.__getitem__)


def main():
    until_s = time.monotonic() + begin(__doc__)
    data = Texts()
    loader = DataLoader(
        data,
        batch_size=200,
        sampler=ByLength(data.texts),
        num_workers=2,
        persistent_workers=True,
    )
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    epoch = 0
    while time.monotonic() < until_s:
        for batch in loader:
            loss = model(batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        epoch += 1
        if epoch == 1:
            print("ready", flush=True)
        if epoch == 3:
            print("three epochs were trained", flush=True)


if __name__ == "__main__":
    main()
