"""Fit a linear probe on sentence embeddings kept in a memory-mapped table."""
import argparse
import logging
import os
import tempfile
import time

import torch
from torch.utils.data import DataLoader

from table import MappedTable, build_table, resident_mb

log = logging.getLogger("probe")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--batch-size", type=int, default=250)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=100)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.manual_seed(0)
    torch.set_num_threads(1)

    with tempfile.TemporaryDirectory(prefix="embeddings_") as tmp:
        path = os.path.join(tmp, "train.f32")
        build_table(path, args.rows, args.dim)
        log.info("table of %d rows, %.0f MB", args.rows, os.path.getsize(path) / 2 ** 20)

        dataset = MappedTable(path, args.dim, stride=args.batch_size)
        loader = DataLoader(dataset, batch_size=None, num_workers=args.workers,
                            sampler=torch.randperm(len(dataset)).tolist(), prefetch_factor=2)
        probe = torch.nn.Linear(args.dim, 2)
        opt = torch.optim.SGD(probe.parameters(), lr=0.1)

        pause = args.seconds / len(dataset)
        start = time.time()
        for i, (x, y, worker_rss) in enumerate(loader):
            loss = torch.nn.functional.cross_entropy(probe(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if i % 20 == 0:
                log.info("batch %3d/%d loss %.4f  rss main %.0f MB, worker %.0f MB", i, len(dataset),
                         loss.item(), resident_mb(), worker_rss)
            time.sleep(max(0.0, start + (i + 1) * pause - time.time()))
        log.info("probe fitted")


if __name__ == "__main__":
    main()
