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

from stopping import EarlyStopping


def site_data(rank, n=4000):
    """Each hospital has its own cohort and its own label noise."""
    g = torch.Generator().manual_seed(100 + rank)
    x = torch.randn(n, 24, generator=g)
    noise = (0.1, 0.8, 4.0)[rank % 3]
    y = x[:, :6].sum(1, keepdim=True) + noise * torch.randn(n, 1, generator=g)
    return x[: n // 2], y[: n // 2], x[n // 2:], y[n // 2:]


def train(rank, world, port, args):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s site{rank} %(message)s")
    dist.init_process_group("gloo", rank=rank, world_size=world)
    model = DDP(nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 1)))
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    stopper = EarlyStopping(args.patience)
    xt, yt, xv, yv = site_data(rank)
    for epoch in range(args.epochs):
        for i in range(0, len(xt), 100):
            loss = nn.functional.mse_loss(model(xt[i:i + 100]), yt[i:i + 100])
            opt.zero_grad()
            loss.backward()
            opt.step()
            time.sleep(0.005)
        with torch.no_grad():
            val = nn.functional.mse_loss(model.module(xv), yv).item()
        logging.info("epoch %d val %.4f", epoch, val)
        if stopper.step(val):
            logging.info("no progress for %d epochs, stopping", args.patience)
            break
    # the local model is evaluated on the long follow-up data
    logging.info("bootstrap of the confidence interval")
    scores = []
    end = time.monotonic() + args.bootstrap_seconds
    while time.monotonic() < end:
        idx = torch.randint(len(xv), (len(xv),))
        with torch.no_grad():
            scores.append(nn.functional.mse_loss(model.module(xv[idx]), yv[idx]).item())
        time.sleep(0.02)
    logging.info("mse %.3f (%d resamples)", sum(scores) / len(scores), len(scores))
    dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--sites", type=int, default=3)
    p.add_argument("--epochs", type=int, default=400)
    p.add_argument("--patience", type=int, default=3)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--bootstrap-seconds", type=float, default=90)
    args = p.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.start_processes(train, args=(args.sites, port, args), nprocs=args.sites, start_method="fork")


if __name__ == "__main__":
    main()
