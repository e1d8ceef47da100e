"""Data parallel PPO on a toy control task: every rank collects its own rollouts, gradients are averaged."""
import argparse
import logging
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from ppo import PPO

log = logging.getLogger("ppo")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run_rank(rank, args, port):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [rank {rank}] %(message)s")
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=args.ranks)
    stats_group = dist.new_group(list(range(args.ranks)), backend="gloo")
    torch.manual_seed(args.seed)
    trainer = PPO(args, rank, stats_group)
    for iteration in range(args.iterations):
        batch = trainer.collect()
        stats = trainer.update(batch)
        totals = trainer.reduce_stats(stats)
        if rank == 0:
            log.info("iteration %d: return %.3f kl %.4f epochs %.1f", iteration,
                     totals["return"], totals["kl"], totals["epochs"])
    dist.destroy_process_group()


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--ranks", type=int, default=3)
    p.add_argument("--iterations", type=int, default=100000)
    p.add_argument("--horizon", type=int, default=64)
    p.add_argument("--envs", type=int, default=8)
    p.add_argument("--epochs", type=int, default=8)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--clip", type=float, default=0.2)
    p.add_argument("--target-kl", type=float, default=0.005)
    p.add_argument("--early-stopping", type=int, default=1)
    p.add_argument("--seed", type=int, default=0)
    return p.parse_args()


def main():
    args = parse_args()
    mp.start_processes(run_rank, args=(args, free_port()), nprocs=args.ranks, start_method="fork")


if __name__ == "__main__":
    main()
