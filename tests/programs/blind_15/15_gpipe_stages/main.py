"""GPipe-style training: three stages on three ranks, micro-batches passed with send/recv."""
import argparse
import logging
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from schedule import GPipeSchedule
from stages import build_stage


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--microbatches", type=int, default=4)
    p.add_argument("--micro-size", type=int, default=4)
    p.add_argument("--seq-len", type=int, default=48)
    p.add_argument("--dim", type=int, default=128)
    p.add_argument("--vocab", type=int, default=12000)
    p.add_argument("--max-seconds", type=float, default=95)
    p.add_argument("--log-every", type=int, default=5)
    return p.parse_args()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run(rank, world_size, args, port):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s stage" + str(rank) + " %(message)s")
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    stage = build_stage(rank, world_size, args)
    opt = torch.optim.AdamW(stage.parameters(), lr=1e-3)
    GPipeSchedule(stage, opt, rank, world_size, args).run()
    dist.barrier()
    dist.destroy_process_group()


def main():
    args = parse_args()
    world_size = 3
    mp.spawn(run, args=(world_size, args, free_port()), nprocs=world_size)


if __name__ == "__main__":
    main()
