import argparse
import logging
import socket

import torch._dynamo
import torch.multiprocessing as mp

from matching.engine import worker

torch._dynamo.config.disable = True


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--world-size", type=int, default=2)
    p.add_argument("--epochs", type=int, default=10)
    p.add_argument("--steps-per-epoch", type=int, default=5000)
    p.add_argument("--points", type=int, default=320)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        args.port = s.getsockname()[1]
    mp.start_processes(worker, nprocs=args.world_size, args=(args,), start_method="fork")


if __name__ == "__main__":
    main()
