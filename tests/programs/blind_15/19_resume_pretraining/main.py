"""Continue the pre-training run from the checkpoint that the last job has left."""
import argparse
import logging
import os
import socket
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from trainer import Trainer

HERE = os.path.dirname(os.path.abspath(__file__))


def run(rank, args, port):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [{rank}] %(name)s: %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(args.seed + rank)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank,
                            world_size=args.nproc)
    Trainer(args).train()
    dist.barrier()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--nproc", type=int, default=3)
    p.add_argument("--load-path", default=os.path.join(HERE, "checkpoints", "global_step_250"))
    p.add_argument("--output-dir", default=None)
    p.add_argument("--max-steps", type=int, default=5000)
    p.add_argument("--steps-per-epoch", type=int, default=500)
    p.add_argument("--micro-batch", type=int, default=8)
    p.add_argument("--seq-len", type=int, default=48)
    p.add_argument("--lr", type=float, default=3e-4)
    p.add_argument("--eval-steps", type=int, default=100)
    p.add_argument("--eval-batches", type=int, default=4)
    p.add_argument("--save-steps", type=int, default=250)
    p.add_argument("--log-steps", type=int, default=10)
    p.add_argument("--seed", type=int, default=0)
    args = p.parse_args()
    if args.output_dir is None:
        args.output_dir = tempfile.mkdtemp(prefix="pretrain_")
    mp.start_processes(run, args=(args, free_port()), nprocs=args.nproc, start_method="fork")


if __name__ == "__main__":
    main()
