"""Train a small convnet; batches come from four persistent loader workers."""
import argparse
import logging
import random
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("train")


class AugmentedImages(Dataset):
    """Synthetic pictures; now and then one is very large and takes long to decode."""

    def __init__(self, n, size=64, large_every=400, large_seconds=0.8):
        self.n, self.size = n, size
        self.large_every, self.large_seconds = large_every, large_seconds

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        img = torch.rand(3, self.size + 8, self.size + 8, generator=g)
        if i % self.large_every == 0:
            time.sleep(self.large_seconds)
        y, x = random.randrange(8), random.randrange(8)
        img = img[:, y:y + self.size, x:x + self.size]
        if random.random() < 0.5:
            img = img.flip(2)
        return img, i % 10


class SmallNet(nn.Module):
    def __init__(self, w=24):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, w, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(w, 2 * w, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(2 * w, 2 * w, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(2 * w, 10)

    def forward(self, x):
        return self.head(self.body(x))


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--images", type=int, default=8000)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--num-workers", type=int, default=4)
    p.add_argument("--prefetch-factor", type=int, default=3)
    p.add_argument("--max-seconds", type=float, default=100)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(AugmentedImages(args.images), args.batch_size, shuffle=True,
                        num_workers=args.num_workers, prefetch_factor=args.prefetch_factor,
                        persistent_workers=True, drop_last=True)
    net = SmallNet()
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    start = time.time()
    epoch = 0
    while time.time() - start < args.max_seconds:
        begin = end = time.time()
        data_time, n = 0.0, 0
        for i, (x, y) in enumerate(loader, 1):
            data_time += time.time() - end
            loss = F.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            n += len(x)
            if i % 25 == 0:
                log.info("epoch %d [%d/%d] loss %.4f  %.0f img/s  data %.0f%%", epoch, i, len(loader), loss.item(),
                         n / (time.time() - begin), 100 * data_time / (time.time() - begin))
            if time.time() - start > args.max_seconds:
                break
            end = time.time()
        epoch += 1
    log.info("finished after %.0f s, %d epochs", time.time() - start, epoch)


if __name__ == "__main__":
    main()
