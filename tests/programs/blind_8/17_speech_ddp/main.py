import argparse
import logging
import socket

import torch._dynamo
import torch.multiprocessing as mp

from speech.run import run

torch._dynamo.config.disable = True


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--world-size", type=int, default=4)
    p.add_argument("--steps", type=int, default=5000)
    p.add_argument("--eval-every", type=int, default=20)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.start_processes(run, nprocs=args.world_size, args=(args, port), start_method="fork")


if __name__ == "__main__":
    main()
