"""Offline serving on a virtual pipeline: short decode requests first, then chunked prefill of long prompts."""
import argparse
import logging
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from parallel_state import GroupCoordinator
from pipeline import Engine, VirtualPipelineRunner


def worker(rank, args, port):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s PP{rank} %(name)s: %(message)s")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=args.pipeline_parallel_size)
    pp = GroupCoordinator(rank, args.pipeline_parallel_size)
    Engine(VirtualPipelineRunner(pp, args.virtual_size, args.hidden_size, args.layers_per_chunk), args).run()
    dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--pipeline-parallel-size", type=int, default=2)
    p.add_argument("--virtual-size", type=int, default=2)
    p.add_argument("--hidden-size", type=int, default=256)
    p.add_argument("--layers-per-chunk", type=int, default=3)
    p.add_argument("--max-num-batched-tokens", type=int, default=256)
    p.add_argument("--warmup-steps", type=int, default=20)
    p.add_argument("--num-steps", type=int, default=5000)
    p.add_argument("--step-interval", type=float, default=0.1)
    p.add_argument("--seed", type=int, default=0)
    args = p.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.start_processes(worker, args=(args, port), nprocs=args.pipeline_parallel_size, start_method="fork")


if __name__ == "__main__":
    main()
