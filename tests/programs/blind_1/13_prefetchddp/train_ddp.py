import argparse
import logging
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

from prefetch import PrefetchLoader

log = logging.getLogger("ddp")


def shard(epoch, rank, rows=600, width=1024):
    g = torch.Generator().manual_seed(1000 * epoch + rank)
    x = torch.randn(rows, width, generator=g)
    return TensorDataset(x, x[:, :1].sign())


def run(rank, args, port):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank{rank} %(message)s")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=args.world_size)
    model = DDP(nn.Sequential(nn.Linear(1024, 16), nn.ReLU(), nn.Linear(16, 1)))
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(args.epochs):
        loader = PrefetchLoader(DataLoader(shard(epoch, rank), batch_size=32, shuffle=True))
        for i, (x, y) in enumerate(loader):
            loss = nn.functional.mse_loss(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            time.sleep(0.06)
            if i + 1 == args.steps_per_epoch:
                break
        if rank == 0:
            log.info("epoch %d loss %.3f", epoch, loss.item())
    dist.destroy_process_group()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--world-size", type=int, default=2)
    ap.add_argument("--epochs", type=int, default=400)
    ap.add_argument("--steps-per-epoch", type=int, default=12)
    args = ap.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.start_processes(run, args=(args, port), nprocs=args.world_size, start_method="fork")


if __name__ == "__main__":
    main()
