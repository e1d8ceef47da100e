"""Trains a small sequence model on a few ranks."""
import argparse
import collections
import logging
import os
import signal
import socket
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

from model import Sequencer, waves
from op_times import OpTimes

log = logging.getLogger("train")


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--steps", type=int, default=200000)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--pace", type=float, default=0.1, help="pause of the data source per step")
    p.add_argument("--log-every", type=int, default=20)
    p.add_argument("--no-op-times", dest="op_times", action="store_false")
    return p.parse_args()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def validate(model, rank):
    model.eval()
    with torch.no_grad():
        errors = []
        for i in range(4):
            x, y = waves(500 + rank, i)
            errors.append(torch.nn.functional.mse_loss(model(x), y))
    model.train()
    total = torch.stack(errors).mean()
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


def train(rank, port, args):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(4)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=args.ranks)
    model = Sequencer()
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    recent = collections.deque(maxlen=200)
    with OpTimes(enabled=args.op_times and rank == 0) as times:
        began = time.monotonic()
        for step in range(1, args.steps + 1):
            with times.mark(step):
                x, y = waves(rank, step)
                loss = torch.nn.functional.mse_loss(ddp(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            recent.append(loss.item())
            time.sleep(args.pace)
            if step % args.log_every == 0:
                value = validate(model, rank)
                if rank == 0:
                    log.info("step %d: train %.4f, validation %.4f, %.1f steps/s", step, sum(recent) / len(recent), value,
                             step / (time.monotonic() - began))
    dist.destroy_process_group()


def main():
    args = parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    mp.start_processes(train, (free_port(), args), nprocs=args.ranks, daemon=True, start_method="fork")


if __name__ == "__main__":
    main()
