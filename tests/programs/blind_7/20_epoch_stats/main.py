"""Sound-event classifier; short epochs, statistics of every layer in a side file."""
import argparse
import logging
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from stats import RunStats

log = logging.getLogger("events")


class ClipDataset(Dataset):
    """Synthetic clips; a few are too quiet and get normalised."""

    def __init__(self, n, stats, samples=8000):
        self.n, self.stats, self.samples = n, stats, samples

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        label = i % 5
        t = np.arange(self.samples) / 8000
        x = np.sin(2 * np.pi * (200 + 150 * label) * t) * rng.uniform(0.01, 1) + 0.1 * rng.standard_normal(self.samples)
        if np.abs(x).max() < 0.5:
            x = x / np.abs(x).max()
            self.stats.count("normalised")
        spec = np.abs(np.fft.rfft(x.reshape(50, 160), axis=1)).astype(np.float32)
        return torch.from_numpy(spec), label


class EventNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(81, 64, batch_first=True)
        self.head = nn.Linear(64, 5)

    def forward(self, x):
        return self.head(self.rnn(x)[1][-1])


def layer_stats(model):
    return {n: [float(v) for v in np.histogram(p.detach().numpy(), bins=64)[0]]
            for n, p in model.named_parameters()}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--clips", type=int, default=96)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--epochs", type=int, default=500)
    p.add_argument("--out", type=Path, default=Path("runs/stats.json"))
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)

    stats = RunStats(args.out)
    loader = DataLoader(ClipDataset(args.clips, stats), batch_size=args.batch_size, shuffle=True,
                        num_workers=args.workers)
    model = EventNet()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        t0, right = time.time(), 0
        for x, y in loader:
            out = model(x)
            loss = nn.functional.cross_entropy(out, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            right += int((out.argmax(1) == y).sum())
            stats.add_step(epoch=epoch, loss=loss.item(), layers=layer_stats(model))
            stats.count("steps")
        log.info("epoch %d accuracy %.2f, %.2f s", epoch, right / args.clips, time.time() - t0)


if __name__ == "__main__":
    main()
