import argparse
import logging
import socket

import torch._dynamo
import torch.multiprocessing as mp

from ranker.trainer import run_worker

torch._dynamo.config.disable = True


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def parse_args():
    p = argparse.ArgumentParser(description="train the click ranker on sharded logs")
    p.add_argument("--world-size", type=int, default=3)
    p.add_argument("--epochs", type=int, default=40)
    p.add_argument("--batch-size", type=int, default=128)
    p.add_argument("--hidden", type=int, default=384)
    p.add_argument("--lr", type=float, default=1e-2)
    p.add_argument("--port", type=int, default=0)
    return p.parse_args()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    args = parse_args()
    args.port = args.port or free_port()
    mp.start_processes(run_worker, nprocs=args.world_size, args=(args,), start_method="fork")


if __name__ == "__main__":
    main()
