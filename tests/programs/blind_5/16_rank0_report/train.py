import argparse
import logging
import tempfile
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

from report import long_report

log = logging.getLogger("train")


def average(model, world):
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world


def run(rank, args, rendezvous):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank{rank} %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{rendezvous}",
        rank=rank,
        world_size=args.nproc,
        timeout=timedelta(minutes=args.timeout_minutes),
    )
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
    gen = torch.Generator().manual_seed(rank)
    for epoch in range(args.epochs):
        for _ in range(args.steps):
            x = torch.randn(32, 16, generator=gen)
            loss = (model(x) - x[:, :1]).pow(2).mean()
            model.zero_grad()
            loss.backward()
            average(model, args.nproc)
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.05 * p.grad
            time.sleep(0.02)
        if rank == 0:
            log.info("epoch %d loss %.4f, writing the report", epoch, loss.item())
            mean, n = long_report(model, args.docs, args.report_seconds)
            log.info("report: %d documents, mean score %.4f", n, mean)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--nproc", type=int, default=3)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--docs", type=int, default=100)
    p.add_argument("--report-seconds", type=float, default=38)
    p.add_argument("--timeout-minutes", type=int, default=60)
    args = p.parse_args()
    rendezvous = tempfile.mkdtemp(prefix="report_") + "/store"
    mp.start_processes(run, args=(args, rendezvous), nprocs=args.nproc, start_method="fork")
