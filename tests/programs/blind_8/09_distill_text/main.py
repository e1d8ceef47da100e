import argparse
import logging
import socket

import torch._dynamo
import torch.multiprocessing as mp

from distill import worker

torch._dynamo.config.disable = True


def pick_port():
    s = socket.socket()
    s.bind(("127.0.0.1", 0))
    port = s.getsockname()[1]
    s.close()
    return port


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--students", type=int, default=2)
    p.add_argument("--duration", type=float, default=125)
    p.add_argument("--ensemble", type=int, default=6)
    p.add_argument("--batch", type=int, default=256)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.info("one teacher of %d members, %d students", args.ensemble, args.students)
    mp.start_processes(worker, nprocs=args.students + 1, args=(args, pick_port()), start_method="fork")


if __name__ == "__main__":
    main()
