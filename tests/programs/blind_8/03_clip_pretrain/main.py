import argparse
import logging
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from clips import ClipDataset

log = logging.getLogger("pretrain")


class Encoder(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, width, 5, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )
        self.head = nn.Linear(width, 32)

    def forward(self, x):
        return self.head(self.body(x))


def build_loader(args):
    dataset = ClipDataset(num_episodes=args.episodes, frame_size=args.frame_size)
    return DataLoader(
        dataset,
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        persistent_workers=True,
    )


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--episodes", type=int, default=8390)
    p.add_argument("--frame-size", type=int, default=64)
    p.add_argument("--batch-size", type=int, default=4)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--epochs", type=int, default=3)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")

    model = Encoder()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4)
    step, start = 0, time.time()
    loader = build_loader(args)
    for epoch in range(args.epochs):
        for frames, target in loader:
            opt.zero_grad()
            loss = (model(frames).mean(dim=1) - target).pow(2).mean()
            loss.backward()
            opt.step()
            step += 1
            if step % 20 == 0:
                log.info("epoch %d step %d loss %.4f %.2f it/s", epoch, step, loss.item(), step / (time.time() - start))


if __name__ == "__main__":
    main()
