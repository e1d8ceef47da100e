"""Policy training on variable-length rollouts, gloo data parallel."""
import argparse
import logging
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from partition import Dispatcher


class SeqPolicy(nn.Module):
    def __init__(self, vocab=128, dim=64):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, num_layers=2, batch_first=True)
        self.head = nn.Linear(dim, vocab)

    def forward(self, x):
        return self.head(self.rnn(self.emb(x))[0])


class Trainer:
    def __init__(self, rank, args):
        self.rank, self.args = rank, args
        self.log = logging.getLogger("policy")
        torch.manual_seed(0)
        self.model = DDP(SeqPolicy())
        self.opt = torch.optim.Adam(self.model.parameters(), 1e-3)
        self.dispatcher = Dispatcher(args.world_size, args.per_rank)

    def batch(self, step):
        lengths = self.dispatcher.partition(step)[self.rank]
        x = torch.zeros(len(lengths), max(lengths), dtype=torch.long)
        for row, n in enumerate(lengths):
            x[row, :n] = torch.randint(1, 128, (n,))
        return x

    def step(self, step):
        x = self.batch(step)
        logits = self.model(x[:, :-1])
        loss = nn.functional.cross_entropy(logits.transpose(1, 2), x[:, 1:], ignore_index=0)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item(), x.shape

    def run(self):
        t0 = time.perf_counter()
        for step in range(1, self.args.steps + 1):
            loss, shape = self.step(step)
            if step % 5 == 0:
                dt = (time.perf_counter() - t0) / 5
                self.log.info("step %d loss %.3f %.2fs/step", step, loss, dt)
                t0 = time.perf_counter()


def entry(rank, port, args):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank{rank} %(message)s")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=args.world_size)
    Trainer(rank, args).run()
    dist.destroy_process_group()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--world-size", type=int, default=3)
    ap.add_argument("--per-rank", type=int, default=8)
    ap.add_argument("--steps", type=int, default=2000)
    args = ap.parse_args()
    torch.set_num_threads(1)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.start_processes(entry, args=(port, args), nprocs=args.world_size, start_method="fork")


if __name__ == "__main__":
    main()
