import argparse
import logging
import socket

import torch._dynamo
import torch.multiprocessing as mp

from control import OperatorConsole
from tracker import train_rank

torch._dynamo.config.disable = True


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--world-size", type=int, default=3)
    p.add_argument("--epochs", type=int, default=500)
    p.add_argument("--batches", type=int, default=12)
    p.add_argument("--patience-loss", type=float, default=0.12)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        args.port = s.getsockname()[1]
    commands, progress = mp.Queue(), mp.Queue()
    ranks = mp.start_processes(
        train_rank, nprocs=args.world_size, args=(args, commands, progress), join=False, start_method="fork"
    )
    OperatorConsole(commands, progress, args.patience_loss).start()
    while not ranks.join():
        pass


if __name__ == "__main__":
    main()
