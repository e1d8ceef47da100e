"""Patch denoiser on a large set of generated tiles."""
import argparse
import logging
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from optim import MomentumSgd
from safe import SafeDataset

log = logging.getLogger("denoise")


class Tiles(Dataset):
    def __init__(self, n, size):
        self.n, self.size = n, size

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if i % 97 == 13:
            raise ValueError(f"tile {i} is empty")
        g = torch.Generator().manual_seed(i)
        coarse = torch.rand(1, 3, 8, 8, generator=g)
        clean = nn.functional.interpolate(coarse, size=(self.size, self.size), mode="bilinear", align_corners=False)[0]
        return clean + 0.1 * torch.randn(clean.shape, generator=g), clean


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x):
        return x + self.conv(x)


def main(args):
    torch.set_num_threads(1)
    data = SafeDataset(Tiles(args.tiles, args.size))
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True, num_workers=args.workers,
                        persistent_workers=True, worker_init_fn=lambda _: torch.set_num_threads(1))
    model = Denoiser()
    opt = MomentumSgd(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        for step, (noisy, clean) in enumerate(loader):
            loss = nn.functional.mse_loss(model(noisy), clean)
            opt.zero_grad()
            loss.backward()
            opt.step()
            time.sleep(args.step_time)
            if step % 10 == 0:
                log.info("epoch %d step %d/%d loss %.5f", epoch, step, len(loader), loss.item())


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--tiles", type=int, default=200000)
    ap.add_argument("--size", type=int, default=112)
    ap.add_argument("--batch-size", type=int, default=8)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--epochs", type=int, default=10)
    ap.add_argument("--step-time", type=float, default=0.35)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    main(ap.parse_args())
