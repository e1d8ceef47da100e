"""Train a small network on generated pictures, with four DataLoader workers.

Nothing is wrong with this program: the loss falls, the workers keep up, nothing grows.
"""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from mpwatch.demo.bounds import begin

CLASSES = 10


class Pictures(Dataset):
    """Noisy pictures with a bright row; the row is the class."""

    def __len__(self):
        return 2048

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        label = index % CLASSES
        picture = torch.randn(3, 32, 32, generator=generator)
        picture[:, 3 * label] += 1.0
        return picture, label


def network():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, CLASSES),
    )


def train(model, loader, until_s):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    epoch = step = 0
    while time.monotonic() < until_s:
        for pictures, labels in loader:
            loss = nn.functional.cross_entropy(model(pictures), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step == 8:
                print("ready", flush=True)
            if time.monotonic() > until_s:
                break
            time.sleep(0.02)  # in place of the rest of a larger network
        epoch += 1
        print(f"epoch {epoch} step {step} loss {loss.item():.3f}", flush=True)


def main():
    seconds = begin(__doc__)
    loader = DataLoader(
        Pictures(), batch_size=32, shuffle=True, num_workers=4, persistent_workers=True
    )
    train(network(), loader, time.monotonic() + seconds)


if __name__ == "__main__":
    main()
