"""Launches one process per rank, as torchrun would, on this host."""
import argparse
import logging
import os
import random
import signal
import socket
import subprocess
import sys
import time

WORLD = 3


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=200)
    p.add_argument("--scenes", type=int, default=3072)
    p.add_argument("--batch-size", type=int, default=128)
    p.add_argument("--lr", type=float, default=3e-4)
    p.add_argument("--seed", type=int, default=1234)
    p.add_argument("--walltime", type=int, default=130)
    return p.parse_args()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def launch(args):
    port = free_port()
    ranks = []
    for rank in range(WORLD):
        env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(WORLD), MASTER_ADDR="127.0.0.1",
                   MASTER_PORT=str(port), OMP_NUM_THREADS="1", PYTHONHASHSEED=str(args.seed + rank))
        ranks.append(subprocess.Popen([sys.executable, *sys.argv], env=env))
    print(f"launcher: started ranks {[p.pid for p in ranks]}", flush=True)
    deadline = time.time() + args.walltime
    try:
        while time.time() < deadline:
            codes = [p.poll() for p in ranks]
            if all(c is not None for c in codes):
                return max(codes)
            if any(c not in (None, 0) for c in codes):
                print(f"launcher: a rank failed: {codes}", flush=True)
                return 1
            time.sleep(0.5)
        print("launcher: wall time over", flush=True)
        return 0
    finally:
        for p in ranks:
            if p.poll() is None:
                p.kill()
            p.wait()


def run_rank(args):
    import torch.distributed as dist
    from trainer import ReplayTrainer
    signal.alarm(args.walltime + 10)
    rank = int(os.environ["RANK"])
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    random.seed(args.seed + rank)
    dist.init_process_group("gloo")
    ReplayTrainer(rank, args).fit()
    dist.destroy_process_group()


if __name__ == "__main__":
    arguments = parse_args()
    if "RANK" in os.environ:
        run_rank(arguments)
    else:
        sys.exit(launch(arguments))
