"""Acoustic model training; four loader processes fetch utterances through the host's file cache."""
import argparse
import logging
import os
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from file_cache import FileCache

log = logging.getLogger("asr")


class Utterances(Dataset):
    def __init__(self, share, cache, n):
        self.paths = [os.path.join(share, f"utt{i:04d}.raw") for i in range(n)]
        self.cache = FileCache(cache)
        block = np.random.default_rng(0).integers(0, 256, 500_000, dtype=np.uint8).tobytes()
        with open(os.path.join(share, "corpus.raw"), "wb") as fh:
            fh.write(block)
        for p in self.paths:
            os.link(os.path.join(share, "corpus.raw"), p)

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        raw = np.fromfile(self.cache.get(self.paths[i]), dtype=np.uint8)
        feats = raw[: 1000 * 80].reshape(1000, 80).astype(np.float32) / 255
        return torch.from_numpy(feats), i % 30


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--utterances", type=int, default=2000)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--workers", type=int, default=4)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="share-") as share, tempfile.TemporaryDirectory(prefix="cache-") as cache:
        loader = DataLoader(Utterances(share, cache, args.utterances), batch_size=args.batch_size, num_workers=args.workers)
        model = nn.Sequential(nn.Linear(80, 64), nn.ReLU(), nn.Linear(64, 30))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        started = time.monotonic()
        for step, (x, y) in enumerate(loader, 1):
            loss = nn.functional.cross_entropy(model(x).mean(1), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            log.info("step %d loss %.3f, %.1f utterances/s", step, loss.item(),
                     step * args.batch_size / (time.monotonic() - started))


if __name__ == "__main__":
    main()
