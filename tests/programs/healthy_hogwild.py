"""Two processes train one shared model: shared before they start, updated in place."""

import time

import torch
import torch.multiprocessing as mp
from torch import nn

from mpwatch.demo.bounds import begin


def train(model: nn.Module, until_s: float) -> None:
    torch.set_num_threads(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    while time.monotonic() < until_s:
        features = torch.randn(32, 8)
        loss = (model(features) - features.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.01)


def main() -> None:
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    model = nn.Linear(8, 1)
    model.share_memory()
    before = model.weight.clone()
    trainers = [mp.Process(target=train, args=(model, until_s)) for _ in range(2)]
    for trainer in trainers:
        trainer.start()
    print("ready", flush=True)
    for trainer in trainers:
        trainer.join()
    assert not torch.equal(before, model.weight)


if __name__ == "__main__":
    main()
