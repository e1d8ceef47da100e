"""BPR matrix factorisation, users split over the ranks."""
import argparse
import logging
import os
import socket
import threading
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F

from data import Interactions, PairwiseLoader

log = logging.getLogger("bpr")


class MF(nn.Module):
    def __init__(self, users, items, dim):
        super().__init__()
        self.user = nn.Embedding(users, dim)
        self.item = nn.Embedding(items, dim)
        self.bias = nn.Embedding(items, 1)
        for e in (self.user, self.item):
            nn.init.normal_(e.weight, std=0.05)
        nn.init.zeros_(self.bias.weight)

    def score(self, u, i):
        return (self.user(u) * self.item(i)).sum(-1) + self.bias(i).squeeze(-1)

    def forward(self, triples):
        u, pos, neg = triples.unbind(1)
        return -F.logsigmoid(self.score(u, pos) - self.score(u, neg)).mean()


class BPRTrainer:
    def __init__(self, args, rank):
        self.args, self.rank = args, rank
        self.data = Interactions()
        self.loader = PairwiseLoader(self.data, rank, args.world, args.batch_size)
        torch.manual_seed(0)
        self.model = MF(self.data.n_users, self.data.n_items, args.dim)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=args.lr)

    def allreduce_grads(self):
        for p in self.model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= self.args.world

    def train_epoch(self):
        total = 0.0
        for rows in self.loader.batches(self.args.batches_per_epoch):
            loss = self.model(torch.from_numpy(rows))
            self.opt.zero_grad()
            loss.backward()
            self.allreduce_grads()
            self.opt.step()
            total += loss.item()
            time.sleep(self.args.io_delay)
        return total / self.args.batches_per_epoch

    @torch.no_grad()
    def coverage(self):
        """Mean rank position of seen items, averaged over everybody's users."""
        acc = torch.zeros(2)
        for u in self.loader.users[::10]:
            scores = self.model.user.weight[u] @ self.model.item.weight.T
            order = scores.argsort(descending=True).argsort().float()
            seen = sorted(self.data.seen[u])
            acc += torch.tensor([order[seen].mean().item(), 1.0])
        dist.all_reduce(acc)
        return (acc[0] / acc[1]).item()

    def fit(self):
        if self.rank == 0:
            log.info("data %s", self.data.stats())
        for epoch in range(self.args.epochs):
            loss = self.train_epoch()
            cov = self.coverage()
            if self.rank == 0:
                log.info("epoch %d bpr loss %.4f mean position %.1f", epoch, loss, cov)


def deadline(seconds):
    t = threading.Timer(seconds, lambda: os._exit(0))
    t.daemon = True
    t.start()


def run(rank, args, port):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [rank {rank}] %(message)s")
    torch.set_num_threads(1)
    deadline(args.max_seconds)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=args.world)
    BPRTrainer(args, rank).fit()
    dist.destroy_process_group()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--world", type=int, default=3)
    ap.add_argument("--epochs", type=int, default=500)
    ap.add_argument("--batch-size", type=int, default=12)
    ap.add_argument("--batches-per-epoch", type=int, default=4)
    ap.add_argument("--dim", type=int, default=32)
    ap.add_argument("--lr", type=float, default=5e-3)
    ap.add_argument("--io-delay", type=float, default=0.4)
    ap.add_argument("--max-seconds", type=float, default=130)
    args = ap.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(run, args=(args, port), nprocs=args.world, join=True)


if __name__ == "__main__":
    main()
