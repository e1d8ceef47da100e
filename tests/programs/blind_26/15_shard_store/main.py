"""Trains node embeddings with several processes on one shared store."""
import argparse
import logging
import time

import torch
import torch.multiprocessing as mp

from store import ShardedStore
from worker import train

log = logging.getLogger("embed")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--nodes", type=int, default=20000)
    p.add_argument("--shards", type=int, default=8)
    p.add_argument("--dim", type=int, default=64)
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--walk-length", type=int, default=24)
    p.add_argument("--hop-rate", type=float, default=0.02)
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--report-every", type=float, default=2.0)
    p.add_argument("--seed", type=int, default=5)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    torch.manual_seed(args.seed)
    ctx = mp.get_context("fork")
    store = ShardedStore(ctx, args.nodes, args.shards, args.dim)
    counters = torch.zeros(args.workers, dtype=torch.long).share_memory_()
    workers = [ctx.Process(target=train, args=(i, store, counters, args), daemon=True) for i in range(args.workers)]
    for w in workers:
        w.start()
    last = 0
    while all(w.is_alive() for w in workers):
        time.sleep(args.report_every)
        total = int(counters.sum())
        log.info("walks %d (%.0f/s) norm %.4f", total, (total - last) / args.report_every,
                 float(store.tables[0].norm(dim=1).mean()))
        last = total


if __name__ == "__main__":
    main()
