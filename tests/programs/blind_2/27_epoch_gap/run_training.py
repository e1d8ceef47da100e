import argparse
import logging
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from datasets import SequenceDataset

log = logging.getLogger("ltr")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=5)
    p.add_argument("--sequences", type=int, default=256)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--index-seconds", type=float, default=9.0)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    loader = DataLoader(SequenceDataset(args.sequences, args.index_seconds), batch_size=16, shuffle=True,
                        num_workers=args.workers)
    net = nn.Sequential(nn.Conv2d(3, 16, 5, 2), nn.ReLU(), nn.Conv2d(16, 16, 5, 2), nn.ReLU(), nn.Flatten(),
                        nn.LazyLinear(4))
    net(torch.rand(1, 3, 48, 48))
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    for epoch in range(1, args.epochs + 1):
        t0 = time.monotonic()
        for x, box in loader:
            loss = nn.functional.l1_loss(net(x), box)
            opt.zero_grad()
            loss.backward()
            opt.step()
        log.info("epoch %d loss %.4f (%.1fs)", epoch, loss.item(), time.monotonic() - t0)


if __name__ == "__main__":
    main()
