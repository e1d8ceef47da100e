import argparse
import logging

import torch
from torch import nn
from torch.utils.data import DataLoader

from slides import SlidePatches

log = logging.getLogger("mil")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--cache-mb", type=int, default=260)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--patches", type=int, default=60_000)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    loader = DataLoader(SlidePatches(args.patches, args.cache_mb), batch_size=16, num_workers=args.workers,
                        persistent_workers=True)
    net = nn.Sequential(nn.Conv2d(3, 16, 8, 8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 1))
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for step, x in enumerate(loader):
        loss = (net(x)[:, 0] - x.mean((1, 2, 3))).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0:
            log.info("step %d loss %.4f", step, loss.item())


if __name__ == "__main__":
    main()
