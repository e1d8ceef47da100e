"""2D segmentation on slices of CT studies."""
import argparse
import logging
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from model import TinyUNet
from volumes import SliceDataset, write_study

log = logging.getLogger("ct")


class Meter:
    def __init__(self):
        self.samples = 0
        self.waited = 0.0
        self.trained = 0.0

    def line(self):
        total = self.waited + self.trained
        return f"{self.samples / max(total, 1e-9):.1f} slices/s (data {self.waited:.1f}s, step {self.trained:.1f}s)"


def train(loader, seconds, lr):
    model = TinyUNet()
    meter = Meter()
    deadline = time.monotonic() + seconds
    step = 0
    while time.monotonic() < deadline:
        mark = time.monotonic()
        for x, y in loader:
            now = time.monotonic()
            meter.waited += now - mark
            loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
            model.zero_grad()
            loss.backward()
            with torch.no_grad():
                for p in model.parameters():
                    p.sub_(p.grad, alpha=lr)
            mark = time.monotonic()
            meter.trained += mark - now
            meter.samples += len(x)
            step += 1
            log.info("step %d loss %.3f %s", step, loss.item(), meter.line())
            if mark > deadline:
                break


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seconds", type=float, default=125)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="ct_") as root:
        dataset = SliceDataset(write_study(root, args.studies))
        loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True, num_workers=args.workers,
                            persistent_workers=True)
        train(loader, args.seconds, args.lr)


if __name__ == "__main__":
    main()
