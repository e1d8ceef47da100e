"""Actor ranks and critic ranks in one job."""
import argparse
import socket

import torch.multiprocessing as mp

from worker import run_rank


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world", type=int, default=3)
    parser.add_argument("--actors", type=int, default=2)
    parser.add_argument("--envs", type=int, nargs="+", default=[32, 48, 32], help="environments per rank")
    parser.add_argument("--sync-every", type=int, default=10, help="updates between weight averages of a role")
    parser.add_argument("--publish-every", type=int, default=1000, help="frames between score exchanges")
    parser.add_argument("--updates", type=int, default=5000)
    args = parser.parse_args()
    mp.spawn(run_rank, args=(args, free_port()), nprocs=args.world)


if __name__ == "__main__":
    main()
