"""Keyword spotting, data-parallel over shards of different size."""
import argparse
import logging
import os
import socket
import time

START = time.monotonic()

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from data import ShardedUtterances


class KeywordNet(nn.Module):
    def __init__(self, mel, dim=96):
        super().__init__()
        self.front = nn.Conv1d(mel, dim, 5, stride=2)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, 12)

    def forward(self, x):
        h = torch.relu(self.front(x.transpose(1, 2))).transpose(1, 2)
        return self.head(self.rnn(h)[0].mean(1))


class Trainer:
    def __init__(self, rank, args):
        self.rank, self.args = rank, args
        self.log = logging.getLogger(f"rank{rank}")
        torch.manual_seed(args.seed)
        self.data = ShardedUtterances(rank, args.batch_size, args.frames, args.mel, args.seed)
        self.model = DistributedDataParallel(KeywordNet(args.mel))
        self.opt = torch.optim.SGD(self.model.parameters(), lr=args.lr)

    def epoch(self, number):
        t0, steps = time.monotonic(), 0
        with self.model.join():
            for x, y in self.data:
                loss = nn.functional.cross_entropy(self.model(x), y)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                steps += 1
                time.sleep(self.args.read_time)
                if steps % 20 == 0:
                    self.log.info("epoch %d step %d/%d loss %.3f", number, steps, len(self.data), loss.item())
            self.log.info("epoch %d: own shards done after %d steps, %.1f s", number, steps, time.monotonic() - t0)

    def out_of_time(self):
        flag = torch.tensor(float(time.monotonic() - START > self.args.time_limit))
        dist.all_reduce(flag)
        return flag.item() > 0

    def fit(self):
        for number in range(self.args.epochs):
            self.epoch(number)
            if self.out_of_time():
                break
        self.log.info("finished after epoch %d", number)


def worker(rank, args, port):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=args.world_size)
    Trainer(rank, args).fit()
    dist.destroy_process_group()


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--world-size", type=int, default=3)
    p.add_argument("--batch-size", type=int, default=10)
    p.add_argument("--frames", type=int, default=60)
    p.add_argument("--mel", type=int, default=32)
    p.add_argument("--epochs", type=int, default=100)
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--read-time", type=float, default=0.06, help="seconds to read a batch from the archive")
    p.add_argument("--time-limit", type=float, default=95.0)
    p.add_argument("--seed", type=int, default=2)
    return p.parse_args()


if __name__ == "__main__":
    args = parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.start_processes(worker, (args, port), nprocs=args.world_size, start_method="fork")
    logging.getLogger("main").warning("all ranks done")
