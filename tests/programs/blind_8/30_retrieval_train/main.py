import argparse
import logging
import socket

import torch._dynamo
import torch.multiprocessing as mp

from retrieval import run_rank

torch._dynamo.config.disable = True


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--world-size", type=int, default=3)
    p.add_argument("--epochs", type=int, default=5)
    p.add_argument("--steps", type=int, default=120)
    p.add_argument("--queries", type=int, default=900)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        args.port = s.getsockname()[1]
    mp.start_processes(run_rank, nprocs=args.world_size, args=(args,), start_method="fork")


if __name__ == "__main__":
    main()
