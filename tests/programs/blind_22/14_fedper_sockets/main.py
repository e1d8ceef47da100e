"""FedPer on one machine: a server and some clients that talk over local sockets.

The first rounds average the whole network, afterwards every client keeps its own head.
"""
import argparse
import multiprocessing as mp
import socket
import time

from client import participate
from server import serve


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--warmup-rounds", type=int, default=5)
    parser.add_argument("--local-epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--budget", type=float, default=130.0, help="seconds for the whole run")
    return parser.parse_args()


def main():
    args = parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    ctx = mp.get_context("fork")
    procs = [ctx.Process(target=serve, args=(port, args), name="fed-server")]
    procs += [ctx.Process(target=participate, args=(cid, port, args), name=f"fed-client-{cid}")
              for cid in range(args.clients)]
    for p in procs:
        p.start()
    deadline = time.time() + args.budget
    for p in procs:
        p.join(max(0.0, deadline - time.time()))
    for p in procs:
        if p.is_alive():
            p.terminate()
            p.join()


if __name__ == "__main__":
    main()
