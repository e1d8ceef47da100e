"""Fail in the middle of a training step because a worker exited.

torch reports the exit by raising an exception from a signal handler, at whatever line the main
thread is executing. The traceback shows the optimizer, which is not at fault.
"""

import os
import signal
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from mpwatch.demo.bounds import begin, mended

DIES_AFTER_S = 7


class Samples(Dataset):
    def __init__(self, dies_at_s):
        self.dies_at_s = dies_at_s

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        if index % 64 == 0 and time.monotonic() > self.dies_at_s and not mended():
            os.kill(os.getpid(), signal.SIGABRT)
        return torch.randn(16)


def train_step(model, optimizer, batch):
    for _ in range(20):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        time.sleep(0.02)


def main():
    begin(__doc__)
    model = nn.Linear(16, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = Samples(time.monotonic() + DIES_AFTER_S)
    for step, batch in enumerate(DataLoader(data, batch_size=32, num_workers=2)):
        if step == 3:
            print("ready", flush=True)
        train_step(model, optimizer, batch)


if __name__ == "__main__":
    main()
