import argparse
import logging
import os
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from records import RecordDataset, write_shard

torch.set_num_threads(1)
log = logging.getLogger("train")


def train_epoch(model, opt, loader, pause):
    seen, total = 0, 0.0
    for keys, feats in loader:
        loss = nn.functional.binary_cross_entropy_with_logits(model(feats).squeeze(1), (keys % 2).float())
        opt.zero_grad()
        loss.backward()
        opt.step()
        seen += len(keys)
        total += loss.item() * len(keys)
        time.sleep(pause)
    return seen, total / seen


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--shards", type=int, default=6)
    ap.add_argument("--per-shard", type=int, default=100)
    ap.add_argument("--workers", type=int, default=3)
    ap.add_argument("--pause", type=float, default=0.03)
    ap.add_argument("--max-time", type=float, default=75)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    with tempfile.TemporaryDirectory(prefix="tfr_", dir=".") as folder:
        for s in range(args.shards):
            write_shard(os.path.join(folder, f"part-{s:03d}.rec"), s * args.per_shard, args.per_shard)
        log.info("%d records in %d shards", args.shards * args.per_shard, args.shards)
        loader = DataLoader(RecordDataset(folder), batch_size=20, num_workers=args.workers,
                            persistent_workers=True)
        model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
        opt = torch.optim.Adam(model.parameters(), lr=1e-3)
        start, epoch = time.time(), 0
        while time.time() - start < args.max_time:
            seen, loss = train_epoch(model, opt, loader, args.pause)
            log.info("epoch %d: %d samples, loss %.4f", epoch, seen, loss)
            epoch += 1


if __name__ == "__main__":
    main()
