import argparse
import logging
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from archive import SliceDataset, build_archive

log = logging.getLogger("scans")


def build_model():
    return nn.Sequential(nn.Conv2d(1, 4, 5, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
                         nn.Linear(64, 2))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--scans", type=int, default=6)
    p.add_argument("--slices", type=int, default=160)
    p.add_argument("--size", type=int, default=128)
    p.add_argument("--workers", type=int, default=1)
    p.add_argument("--epochs", type=int, default=20)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="scans_") as root:
        paths = build_archive(root, args.scans, args.slices, args.size)
        log.info("archive of %d scans ready", len(paths))
        loader = DataLoader(SliceDataset(paths, args.slices), batch_size=8, shuffle=True,
                            num_workers=args.workers, persistent_workers=True)
        model = build_model()
        opt = torch.optim.Adam(model.parameters())
        for epoch in range(args.epochs):
            t0 = time.time()
            for step, (x, y) in enumerate(loader):
                loss = nn.functional.cross_entropy(model(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                if step % 2 == 1:
                    log.info("epoch %d step %d/%d loss %.3f %.1f slices/s", epoch, step + 1, len(loader),
                             loss.item(), 8 * (step + 1) / (time.time() - t0))


if __name__ == "__main__":
    main()
