import argparse
import logging
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from tiles import TileDataset

log = logging.getLogger("segment")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--slides", type=int, default=160)
    p.add_argument("--cache-mb", type=int, default=260)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--duration", type=float, default=130)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")

    dataset = TileDataset(args.slides, args.cache_mb * 2**20)
    loader = DataLoader(dataset, batch_size=8, shuffle=True, num_workers=args.workers, persistent_workers=True)
    net = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 1, 3))
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    end = time.time() + args.duration
    epoch = 0
    while time.time() < end:
        start, n = time.time(), 0
        for x in loader:
            opt.zero_grad()
            loss = net(x).pow(2).mean()
            loss.backward()
            opt.step()
            n += len(x)
        log.info("epoch %d loss %.4f, %.0f tiles/s", epoch, loss.item(), n / (time.time() - start))
        epoch += 1


if __name__ == "__main__":
    main()
