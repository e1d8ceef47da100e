"""Train one model from several processes that each have a copy of their own.

`share_memory()` was forgotten. Under fork nothing fails: the loss falls in each process, and the
main process saves an untrained model.
"""

import time

import torch
import torch.multiprocessing as mp
from torch import nn

from mpwatch.demo.bounds import begin, mended


def train(model, until_s):
    torch.set_num_threads(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    while time.monotonic() < until_s:
        features = torch.randn(32, 8)
        loss = (model(features) - features.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.01)


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    model = nn.Linear(8, 1)
    if mended():
        model.share_memory()
    before = model.weight.clone()
    trainers = [mp.Process(target=train, args=(model, until_s)) for _ in range(2)]
    for trainer in trainers:
        trainer.start()
    print("ready", flush=True)
    while time.monotonic() < until_s:
        time.sleep(2)
        changed = not torch.equal(before, model.weight)
        print(f"the main process's model has changed: {changed}", flush=True)
    for trainer in trainers:
        trainer.join()


if __name__ == "__main__":
    main()
