"""Asynchronous data parallel training with one parameter server and several trainers."""
import argparse
import logging
import os
import socket
import threading

import torch
import torch.distributed.rpc as rpc
import torch.multiprocessing as mp

import server
import trainer


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trainers", type=int, default=2)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--tune-every", type=int, default=120)
    parser.add_argument("--think-time", type=float, default=0.02)
    parser.add_argument("--ps-threads", type=int, default=1,
                        help="threads that serve requests on the parameter server")
    parser.add_argument("--time-limit", type=float, default=130.0)
    return parser.parse_args()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def arm_time_limit(seconds):
    timer = threading.Timer(seconds, lambda: os._exit(0))
    timer.daemon = True
    timer.start()


def run(rank, args, port):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s[%(process)d] %(message)s")
    torch.set_num_threads(1)
    arm_time_limit(args.time_limit)
    name = "ps" if rank == 0 else f"trainer{rank}"
    # Updates are applied one by one in the order they come in.
    threads = args.ps_threads if rank == 0 else 4
    options = rpc.TensorPipeRpcBackendOptions(
        num_worker_threads=threads,
        rpc_timeout=900,
        init_method=f"tcp://127.0.0.1:{port}",
    )
    if rank == 0:
        server.create(args.width, args.lr, args.tune_every)
    rpc.init_rpc(name, rank=rank, world_size=args.trainers + 1, rpc_backend_options=options)
    if rank > 0:
        trainer.train(name, rank, args, server.build_model)
    rpc.shutdown()


def main():
    args = parse_args()
    mp.spawn(run, args=(args, free_port()), nprocs=args.trainers + 1, join=True)


if __name__ == "__main__":
    main()
