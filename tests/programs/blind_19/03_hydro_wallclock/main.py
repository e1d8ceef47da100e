"""Advection of a turbulent density field on strips, one per rank."""
import argparse
import logging
import os
import socket
import tempfile
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from driver import Driver
from mesh import MeshBlock

log = logging.getLogger("hydro")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--ranks", type=int, default=3)
    p.add_argument("--nx", type=int, default=160)
    p.add_argument("--ny", type=int, default=240)
    p.add_argument("--modes", type=int, default=20)
    p.add_argument("--slab-modes", type=int, default=4000)
    p.add_argument("--tlim", type=float, default=5.0)
    p.add_argument("--nlim", type=int, default=100000)
    p.add_argument("--cfl", type=float, default=0.3)
    p.add_argument("--wall-time", type=float, default=5.0)
    p.add_argument("--queue-limit", type=float, default=130.0)
    p.add_argument("--out-dir", default=None)
    return p.parse_args()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run(rank, args, port):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s rank{} %(message)s".format(rank), force=True)
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=args.ranks, timeout=timedelta(seconds=140))
    block = MeshBlock(rank, args.ranks, args.nx, args.ny)
    dist.barrier()

    in_slab = rank > 0
    block.initialize(args.slab_modes if in_slab else args.modes, seed=3)
    driver = Driver(block, args)
    driver.start_clock()
    log.info("block ready, %d x %d cells", block.nx, block.ny)
    driver.execute()
    log.info("main loop left after %d cycles, elapsed %.2f s", driver.ncycle, driver.elapsed())
    driver.write_restart()
    dist.destroy_process_group()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s launcher %(message)s")
    with tempfile.TemporaryDirectory(prefix="hydro-") as tmp:
        args.out_dir = args.out_dir or tmp
        ctx = mp.start_processes(run, args=(args, free_port()), nprocs=args.ranks, join=False, start_method="fork")
        end = time.monotonic() + args.queue_limit
        while not ctx.join(timeout=1.0):
            if time.monotonic() > end:
                log.info("queue limit reached, ending the job")
                for p in ctx.processes:
                    p.kill()
                break
    log.info("job over")


if __name__ == "__main__":
    main()
