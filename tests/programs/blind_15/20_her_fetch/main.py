"""DDPG with hindsight experience replay, one agent per process with averaged gradients."""
import argparse
import logging
import socket

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from ddpg_agent import ddpg_agent


def launch(rank, args, port):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [{rank}] %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(args.seed + rank)
    np.random.seed(args.seed + rank)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank,
                            world_size=args.n_workers)
    ddpg_agent(args, rank).learn()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--n-workers", type=int, default=2)
    p.add_argument("--n-epochs", type=int, default=500)
    p.add_argument("--n-cycles", type=int, default=2)
    p.add_argument("--n-batches", type=int, default=20)
    p.add_argument("--rollouts-per-cycle", type=int, default=100)
    p.add_argument("--n-init-rollouts", type=int, default=20)
    p.add_argument("--buffer-size", type=int, default=600_000)
    p.add_argument("--batch-size", type=int, default=256)
    p.add_argument("--replay-k", type=int, default=4)
    p.add_argument("--gamma", type=float, default=0.98)
    p.add_argument("--random-eps", type=float, default=0.3)
    p.add_argument("--seed", type=int, default=123)
    args = p.parse_args()
    mp.start_processes(launch, args=(args, free_port()), nprocs=args.n_workers, start_method="fork")


if __name__ == "__main__":
    main()
