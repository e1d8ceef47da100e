import argparse
import logging
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

from parallel_state import ParallelState

log = logging.getLogger("distill")


def pretrain_embedding(rank, steps):
    """All ranks warm up the common embedding together."""
    emb = nn.Linear(64, 32)
    opt = torch.optim.SGD(emb.parameters(), lr=0.1)
    for s in range(steps):
        x = torch.randn(32, 64)
        loss = (emb(x) - x[:, :32]).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        for p in emb.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        opt.step()
        time.sleep(0.1)
        if rank == 0 and s % 20 == 0:
            log.info("warm-up step %d loss %.4f", s, loss.item())
    return emb


def main_worker(rank, args, port):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [rank {rank}] %(message)s")
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), TORCH_DIST_INIT_BARRIER="1")
    dist.init_process_group("gloo", rank=rank, world_size=3)
    emb = pretrain_embedding(rank, args.warmup)
    state = ParallelState(teacher_ranks=[0, 1], student_ranks=[2])
    head = nn.Linear(32, 32)
    opt = torch.optim.Adam(head.parameters())
    for step in range(args.steps):
        x = emb(torch.randn(32, 64)).detach()
        target = torch.zeros(32, 32)
        if state.is_teacher:
            target = state.mean(head(x).detach())
        dist.broadcast(target, src=0)
        loss = (head(x) - target).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(0.05)
        if step % 20 == 0:
            log.info("step %d loss %.4f", step, loss.item())


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--warmup", type=int, default=25)
    ap.add_argument("--steps", type=int, default=2000)
    args = ap.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.start_processes(main_worker, args=(args, port), nprocs=3, start_method="fork")


if __name__ == "__main__":
    main()
