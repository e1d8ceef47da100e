"""Keyword spotting, data parallel; every rank reads its own corpus."""
import argparse
import logging
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from clips import Clips

CORPUS_OF_RANK = ["studio", "field"]


def train(rank, args, port):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [rank{rank}] %(message)s", force=True)
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=args.world_size)
    model = DistributedDataParallel(nn.Sequential(
        nn.Unflatten(1, (1, -1)), nn.Conv1d(1, 8, 40, 20), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 198, 4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Clips(CORPUS_OF_RANK[rank % 2]), batch_size=args.batch_size)
    mark = time.monotonic()
    for step, (x, y) in enumerate(loader, 1):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 2 == 0:
            now = time.monotonic()
            logging.info("step %d loss %.4f %.2f s/step", step, loss.item(), (now - mark) / 2)
            mark = now
    dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--world-size", type=int, default=2)
    p.add_argument("--batch-size", type=int, default=8)
    args = p.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.start_processes(train, args=(args, port), nprocs=args.world_size, start_method="fork")


if __name__ == "__main__":
    main()
