"""Train a 2d segmentation net on slices from augmenting worker processes."""
import argparse
import logging
import os
import time

import numpy as np
import torch
from torch import nn

from augmenter import MultiThreadedAugmenter
from loading import SliceLoader, mirror_and_noise, unpack_dataset

log = logging.getLogger("segtrain")


class SmallUNet(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, width, 3, 2, 1), nn.ReLU())
        self.up = nn.ConvTranspose2d(width, 2, 2, 2)

    def forward(self, x):
        return self.up(self.down(x))


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", default=os.path.join(here, "preprocessed"))
    parser.add_argument("--cases", type=int, default=60)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--cached", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--batches", type=int, default=50)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)

    identifiers = unpack_dataset(args.folder, args.cases)
    log.info("%d cases in %s", len(identifiers), os.path.basename(args.folder))
    loader = SliceLoader(args.folder, identifiers, batch_size=4)
    gen = MultiThreadedAugmenter(loader, mirror_and_noise, args.processes, args.cached)

    net = SmallUNet()
    opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    for epoch in range(args.epochs):
        losses, t0 = [], time.time()
        for i in range(args.batches):
            batch = next(gen)
            x, y = torch.from_numpy(batch["data"]), torch.from_numpy(batch["seg"])
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
            if i % 10 == 0:
                log.info("epoch %d batch %d loss %.4f", epoch, i, losses[-1])
        log.info("epoch %d: train loss %.4f, %.1f s", epoch, np.mean(losses), time.time() - t0)


if __name__ == "__main__":
    main()
