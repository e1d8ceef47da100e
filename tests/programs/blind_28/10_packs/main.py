"""Train a small image-text model on packed samples."""
import argparse
import logging
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from gc_dataset import GcDataset
from packs import PackDataset, build_index

log = logging.getLogger("train")


class TwoTower(nn.Module):
    def __init__(self, vocabulary: int, width: int):
        super().__init__()
        self.vision = nn.Sequential(
            nn.Conv2d(3, 32, 4, 4), nn.GELU(), nn.Conv2d(32, 64, 4, 4), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, width)
        )
        self.text = nn.EmbeddingBag(vocabulary, width)
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, images, tokens):
        a = F.normalize(self.vision(images), dim=-1)
        b = F.normalize(self.text(tokens), dim=-1)
        return self.scale.exp() * a @ b.T


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--packs", type=int, default=40)
    parser.add_argument("--samples-per-pack", type=int, default=6000)
    parser.add_argument("--image-size", type=int, default=64)
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--log-every", type=int, default=5)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)

    started = time.monotonic()
    index = build_index(args.packs, args.samples_per_pack)
    log.info("index of %d samples in %d packs read in %.1f s", len(index), args.packs, time.monotonic() - started)
    dataset = GcDataset(PackDataset(index, args.image_size, args.vocabulary, 24, seed=11))
    loader = DataLoader(dataset, batch_size=args.batch_size, num_workers=args.workers, prefetch_factor=2, persistent_workers=True)

    model = TwoTower(args.vocabulary, 128)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    waited = 0.0
    window = tick = time.monotonic()
    for step, (images, tokens) in enumerate(loader, start=1):
        waited += time.monotonic() - tick
        logits = model(images, tokens)
        target = torch.arange(len(images))
        loss = (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % args.log_every == 0:
            elapsed = time.monotonic() - window
            log.info("step %d loss %.4f %.1f samples/s data %.0f %%", step, loss.item(), args.log_every * args.batch_size / elapsed, 100 * waited / elapsed)
            window, waited = time.monotonic(), 0.0
        if step >= args.steps:
            break
        tick = time.monotonic()


if __name__ == "__main__":
    main()
