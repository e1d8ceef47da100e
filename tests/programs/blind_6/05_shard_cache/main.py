"""Contrastive training over a cached feature store, data-parallel over processes."""
import argparse
import logging
import multiprocessing as mp
import os
import tempfile
import time

import torch
from torch import nn

from cache import ShardCache
from runlock import CacheLock

log = logging.getLogger("train")


def usage_monitor(directory, interval):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s monitor %(message)s", force=True)
    while True:
        size = sum(e.stat().st_size for e in os.scandir(directory))
        log.info("cache holds %.1f MiB", size / 2**20)
        time.sleep(interval)


def trainer(index, cache, epochs, done):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s trainer-{index} %(message)s", force=True)
    torch.set_num_threads(1)
    torch.manual_seed(index)
    net = nn.Sequential(nn.Linear(cache.dim, 64), nn.ReLU(), nn.Linear(64, 16))
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    for epoch in range(epochs):
        for shard in range(index, cache.shards, 2):
            x = torch.from_numpy(cache.get(shard)[:512].copy())
            a, b = net(x + 0.01 * torch.randn_like(x)), net(x)
            loss = nn.functional.cross_entropy(a @ b.T / 0.1, torch.arange(len(x)))
            opt.zero_grad()
            loss.backward()
            opt.step()
            log.info("epoch %d shard %d loss %.3f", epoch, shard, loss.item())
            time.sleep(0.1)
    done.put(index)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--shards", type=int, default=24)
    ap.add_argument("--warm", type=int, default=4)
    ap.add_argument("--epochs", type=int, default=40)
    ap.add_argument("--cache-dir", default=None)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s main %(message)s", force=True)
    torch.set_num_threads(1)
    directory = args.cache_dir or tempfile.mkdtemp(prefix="shards_")
    cache = ShardCache(directory, args.shards)

    with CacheLock(directory):
        monitor = mp.Process(target=usage_monitor, args=(directory, 20.0), daemon=True, name="monitor")
        monitor.start()
        cache.prepare(args.warm)
    log.info("%d shards warm", args.warm)

    done = mp.Queue()
    procs = [
        mp.Process(target=trainer, args=(i, cache, args.epochs, done), name=f"trainer-{i}")
        for i in range(2)
    ]
    for p in procs:
        p.start()
    for _ in procs:
        log.info("trainer %d finished", done.get())
    for p in procs:
        p.join()


if __name__ == "__main__":
    main()
