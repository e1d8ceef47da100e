import argparse
import logging
import socket
import tempfile

import torch._dynamo
import torch.multiprocessing as mp

from trainer import launch

torch._dynamo.config.disable = True


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--world-size", type=int, default=3)
    p.add_argument("--steps", type=int, default=4000)
    p.add_argument("--save-every", type=int, default=40)
    p.add_argument("--latents", type=int, default=1024)
    p.add_argument("--out", default=None)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    args.out = args.out or tempfile.mkdtemp(prefix="coder_")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        args.port = s.getsockname()[1]
    mp.start_processes(launch, nprocs=args.world_size, args=(args,), start_method="fork")


if __name__ == "__main__":
    main()
