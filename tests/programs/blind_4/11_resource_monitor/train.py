"""Train the light-curve classifier."""
import argparse
import logging

import torch
from torch import nn

from monitor import ResourceMonitor

log = logging.getLogger("train")


class LightCurves(torch.utils.data.Dataset):
    def __init__(self, n, classes):
        g = torch.Generator().manual_seed(1)
        self.x = torch.randn(n, 128, generator=g)
        self.y = torch.arange(n) * (classes + 1) // n

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


def run_training(args):
    model = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, args.classes))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = torch.utils.data.DataLoader(LightCurves(args.samples, args.classes), batch_size=32)
    for epoch in range(args.epochs):
        for step, (x, y) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 25 == 0:
                log.info("epoch %d step %d loss %.4f", epoch, step, loss.item())
    return model


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--samples", type=int, default=8000)
    p.add_argument("--classes", type=int, default=5)
    p.add_argument("--output", default="/tmp/lightcurve.pt")
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)

    monitor = ResourceMonitor()
    monitor.start()
    model = run_training(args)
    torch.save(model.state_dict(), args.output)
    monitor.stop()
    log.info("saved %s", args.output)


if __name__ == "__main__":
    main()
