"""Contrastive image-text pretraining on a toy scale."""
import argparse
import logging
import multiprocessing as mp
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from captions import CaptionedImages

log = logging.getLogger("pretrain")


class TwoTower(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.image = nn.Sequential(nn.Flatten(), nn.Linear(768, dim))
        self.text = nn.EmbeddingBag(5000, dim)

    def forward(self, image, tokens):
        return nn.functional.normalize(self.image(image)) @ nn.functional.normalize(self.text(tokens)).T


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--pairs", type=int, default=20000)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--workers", type=int, default=2)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)

    with mp.Manager() as manager:
        data = CaptionedImages(manager, args.pairs)
        log.info("index of %d pairs ready", len(data))
        loader = DataLoader(data, batch_size=args.batch_size, shuffle=True, num_workers=args.workers)
        model = TwoTower()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        started = time.monotonic()
        for step, (image, tokens) in enumerate(loader, 1):
            logits = model(image, tokens) * 10
            loss = nn.functional.cross_entropy(logits, torch.arange(len(logits)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 2 == 0:
                log.info("step %d loss %.3f, %.1f pairs/s", step, loss.item(),
                         step * args.batch_size / (time.monotonic() - started))


if __name__ == "__main__":
    main()
