"""Three-stage curriculum training of a text model with a time-series branch."""
import argparse
import logging
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from curriculum import CurriculumTrainer
from model import SeriesTextModel

STAGES = [
    ("stage1_series_qa", 600, 1.0, 1),
    ("stage2_captioning", 600, 0.9, 1),
    ("stage3_mixed_cot", 3600, 0.3, 40),
]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def worker(rank, args, port):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank{rank} %(message)s")
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    dist.init_process_group("gloo", rank=rank, world_size=args.world_size)
    CurriculumTrainer(SeriesTextModel(), args).run()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--world-size", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=12)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    args.stages = STAGES
    mp.start_processes(worker, args=(args, free_port()), nprocs=args.world_size, start_method="fork")


if __name__ == "__main__":
    main()
