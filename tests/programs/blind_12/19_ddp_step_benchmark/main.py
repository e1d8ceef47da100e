"""Benchmarks DDP steps of a small model zoo over several batch sizes (gloo, one process per rank)."""
import argparse
import logging
import os
import socket
import statistics
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from bench import StepBenchmark
from models import ZOO

log = logging.getLogger("main")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def worker(rank, args, port, outdir):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank{rank} %(message)s")
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=args.world_size)
    for repeat in range(args.repeats):
        for batch_size in args.batch_sizes:
            for name, build in ZOO.items():
                bench = StepBenchmark(outdir, batch_size, args.mintime, args.mintrials, args.maxtrials)
                times = bench.run(name, build)
                if rank == 0:
                    log.info("repeat %d batch %d %-10s median %.1f ms over %d trials", repeat, batch_size, name,
                             1e3 * statistics.median(times), len(times))
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--world-size", type=int, default=3)
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[32, 64, 128])
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--mintime", type=float, default=1.0)
    parser.add_argument("--mintrials", type=int, default=5)
    parser.add_argument("--maxtrials", type=int, default=1000)
    args = parser.parse_args()
    outdir = tempfile.mkdtemp(prefix="ddpbench_")
    mp.start_processes(worker, args=(args, free_port(), outdir), nprocs=args.world_size, start_method="fork")


if __name__ == "__main__":
    main()
