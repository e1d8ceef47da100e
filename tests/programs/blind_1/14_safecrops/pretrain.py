"""Contrastive pretraining on random crops of huge slides."""
import argparse
import logging
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from safe_dataset import SafeDataset

log = logging.getLogger("pretrain")


class SlideCrops(Dataset):
    N = 2_000_000

    def __len__(self):
        return self.N

    def __getitem__(self, idx):
        if idx % 97 == 3:
            raise ValueError("background tile")
        time.sleep(0.03)
        g = torch.Generator().manual_seed(idx)
        return torch.rand(3, 72, 72, generator=g)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 16, 5, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
                                 nn.Linear(256, 64))

    def forward(self, x):
        return nn.functional.normalize(self.net(x), dim=-1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--steps", type=int, default=4000)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    ds = SafeDataset(SlideCrops())
    sampler = torch.utils.data.RandomSampler(ds, replacement=True, num_samples=args.steps * args.batch)
    loader = DataLoader(ds, batch_size=args.batch, sampler=sampler, num_workers=args.workers, persistent_workers=True)
    enc = Encoder()
    opt = torch.optim.AdamW(enc.parameters(), lr=1e-3)
    for step, x in enumerate(loader):
        a, b = enc(x + 0.1 * torch.randn_like(x)), enc(x.flip(-1))
        loss = nn.functional.cross_entropy(a @ b.t() / 0.1, torch.arange(len(x)))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            log.info("step %d loss %.3f", step, loss.item())


if __name__ == "__main__":
    main()
