"""Train a small convolutional language model on a packed corpus with one reader process per shard."""
import argparse
import logging
import os
import tempfile
import time

import torch
import torch.nn as nn

from loader import ShardLoader
from packing import pack

log = logging.getLogger("train")

SOURCES = {"books": 0.0, "wiki": 0.0, "code": 0.0, "crawl": 0.02}


class ConvLM(nn.Module):
    """Causal convolutions over the last few tokens."""

    def __init__(self, vocab, dim, kernel=4):
        super().__init__()
        self.pad = kernel - 1
        self.embed = nn.Embedding(vocab, dim)
        self.convs = nn.ModuleList(nn.Conv1d(dim, dim, kernel) for _ in range(2))
        self.head = nn.Linear(dim, vocab)

    def forward(self, x):
        h = self.embed(x).transpose(1, 2)
        for conv in self.convs:
            h = h + torch.relu(conv(nn.functional.pad(h, (self.pad, 0))))
        return self.head(h.transpose(1, 2))


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--docs", type=int, default=2000, help="documents per shard")
    p.add_argument("--vocab", type=int, default=256)
    p.add_argument("--seq", type=int, default=64)
    p.add_argument("--rate", type=float, default=5.0, help="documents per second and reader (shared disk quota)")
    p.add_argument("--dim", type=int, default=48)
    p.add_argument("--seed", type=int, default=29)
    p.add_argument("--epochs", type=int, default=50)
    return p.parse_args()


def train(args, root):
    for i, (name, mirrored) in enumerate(SOURCES.items()):
        repeats = pack(root, name, args.docs, args.vocab, mirrored, args.seed + i)
        log.info("packed %s: %d documents, %d of them repeats", name, args.docs, repeats)
    loader = ShardLoader(root, list(SOURCES), args.seq, args.rate)
    model = ConvLM(args.vocab, args.dim)
    optim = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(args.epochs):
        loader.start_epoch()
        t0, seen = time.time(), 0
        metrics = open(os.path.join(root, f"metrics_{epoch}.csv"), "w")
        for step, rows in enumerate(loader.batches(), 1):
            rows = torch.from_numpy(rows).long()
            loss = nn.functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
            optim.zero_grad()
            loss.backward()
            optim.step()
            seen += rows.size(0)
            metrics.write(f"{step},{loss.item():.5f}\n")
            if step % 100 == 0:
                log.info("epoch %d step %d loss %.3f %.0f rows/s", epoch, step, loss.item(), seen / (time.time() - t0))
        metrics.close()
        loader.archive(metrics.name)


if __name__ == "__main__":
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="packed_") as root:
        train(args, root)
