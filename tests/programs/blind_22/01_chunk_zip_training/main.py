"""Train a small patch classifier straight from a zipped chunk archive."""
import argparse
import logging
import os
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from store import ChunkedArray, ZipStore, write_archive

log = logging.getLogger("train")


class PatchDataset(Dataset):
    def __init__(self, archive, num_classes):
        self.patches = ChunkedArray(ZipStore(archive))
        self.num_classes = num_classes

    def __len__(self):
        return len(self.patches)

    def __getitem__(self, index):
        patch = torch.from_numpy(self.patches[index].copy()).float().div_(255.0)
        if torch.rand(()) < 0.5:
            patch = patch.flip(-1)
        return patch.unsqueeze(0), index % self.num_classes


class PatchNet(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(4), nn.Flatten(),
        )
        self.head = nn.Linear(256, num_classes)

    def forward(self, x):
        return self.head(self.body(x))


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--patches", type=int, default=16000)
    p.add_argument("--side", type=int, default=32)
    p.add_argument("--classes", type=int, default=8)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--time-limit", type=float, default=125.0, help="seconds of training")
    return p.parse_args()


def train(args, archive):
    dataset = PatchDataset(archive, args.classes)
    loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True,
                        num_workers=args.workers, persistent_workers=True, drop_last=True)
    model = PatchNet(args.classes)
    optim = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loss_fn = nn.CrossEntropyLoss()
    started = time.monotonic()
    for epoch in range(args.epochs):
        tick = time.monotonic()
        for step, (x, y) in enumerate(loader):
            fetched = time.monotonic()
            optim.zero_grad()
            loss = loss_fn(model(x), y)
            loss.backward()
            optim.step()
            done = time.monotonic()
            log.info("epoch %d step %d/%d loss %.3f data %.2fs compute %.3fs",
                     epoch, step, len(loader), loss.item(), fetched - tick, done - fetched)
            tick = time.monotonic()
            if tick - started > args.time_limit:
                log.info("time limit reached")
                return


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.manual_seed(7)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="patches_") as root:
        archive = os.path.join(root, "patches.zip")
        write_archive(archive, args.patches, args.side)
        train(args, archive)


if __name__ == "__main__":
    main()
