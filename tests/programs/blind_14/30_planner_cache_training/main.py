"""Train a planner on two ranks; rank 0 prepares the feature cache first."""
import argparse
import logging
import os
import socket
import tempfile
import time

START = time.monotonic()

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from scenarios import CachedScenarios, FeatureBuilder, write_logs


def prepare_cache(root, cache, args, log):
    log.info("caching %d scenarios", args.scenarios)
    builder, xs, ys = FeatureBuilder(args.refine), [], []
    for name in sorted(os.listdir(root)):
        x, y = builder(os.path.join(root, name))
        xs.append(x)
        ys.append(y)
        time.sleep(args.store_latency)
    np.savez(cache, x=np.stack(xs), y=np.stack(ys))
    log.info("cache written")


def train(rank, args, root, port):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    log = logging.getLogger(f"rank{rank}")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=args.world_size)
    cache = os.path.join(root, "..", "features.npz")
    if rank == 0:
        prepare_cache(root, cache, args, log)
    dist.barrier()
    data = CachedScenarios(cache)
    sampler = DistributedSampler(data, args.world_size, rank, seed=args.seed)
    loader = DataLoader(data, args.batch_size, sampler=sampler, drop_last=True)
    torch.manual_seed(args.seed)
    net = DistributedDataParallel(nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(),
                                                nn.Linear(256, 2)))
    opt = torch.optim.AdamW(net.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        total = 0.0
        for x, y in loader:
            loss = nn.functional.smooth_l1_loss(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
            time.sleep(args.io_wait)
        stop = torch.tensor(float(time.monotonic() - START > args.time_limit))
        dist.all_reduce(stop)
        if rank == 0:
            log.info("epoch %d loss %.4f", epoch, total / len(loader))
        if stop.item():
            break
    dist.destroy_process_group()
    log.info("training finished")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--world-size", type=int, default=2)
    p.add_argument("--scenarios", type=int, default=1200)
    p.add_argument("--refine", type=int, default=12)
    p.add_argument("--store-latency", type=float, default=0.02)
    p.add_argument("--io-wait", type=float, default=0.02)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--epochs", type=int, default=1000)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--time-limit", type=float, default=98.0)
    p.add_argument("--seed", type=int, default=9)
    return p.parse_args()


def main():
    args = parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="planner_") as tmp:
        root = os.path.join(tmp, "logs")
        write_logs(root, args.scenarios, args.seed)
        mp.start_processes(train, (args, root, port), nprocs=args.world_size, start_method="fork")


if __name__ == "__main__":
    main()
