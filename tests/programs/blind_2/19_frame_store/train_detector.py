import argparse
import logging
import os
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader

from store import FrameStore, write_store

log = logging.getLogger("train")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--frames", type=int, default=3000)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--epochs", type=int, default=50)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    path = os.path.join(tempfile.mkdtemp(prefix="frames-"), "train.bin")
    write_store(path, args.frames)
    loader = DataLoader(FrameStore(path), batch_size=16, num_workers=args.workers)
    net = nn.Sequential(nn.Conv2d(3, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(),
                        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        for i, (x, y) in enumerate(loader):
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if i % 20 == 0:
                log.info("epoch %d batch %d loss %.3f", epoch, i, loss.item())


if __name__ == "__main__":
    main()
