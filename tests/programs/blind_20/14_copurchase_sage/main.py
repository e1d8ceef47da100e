"""Distributed node classification on a co-purchase graph (one partition per rank)."""
import argparse
import logging
import os
import signal
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

from graph import build_graph, partition
from model import AttnSage
from sampler import NeighborLoader

log = logging.getLogger("sage")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--ranks", type=int, default=3)
    p.add_argument("--nodes", type=int, default=30_000)
    p.add_argument("--avg-degree", type=int, default=40)
    p.add_argument("--dim", type=int, default=48)
    p.add_argument("--hidden", type=int, default=64)
    p.add_argument("--classes", type=int, default=24)
    p.add_argument("--batch-size", type=int, default=256)
    p.add_argument("--epochs", type=int, default=1000)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--log-every", type=int, default=10)
    p.add_argument("--seed", type=int, default=715)
    p.add_argument("--walltime", type=int, default=130)
    return p.parse_args()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Trainer:
    def __init__(self, args, rank, graph, seeds):
        self.args = args
        self.rank = rank
        self.loader = NeighborLoader(graph, seeds, args.batch_size, args.seed + rank)
        self.model = DDP(AttnSage(args.dim, args.hidden, args.classes))
        self.opt = torch.optim.Adam(self.model.parameters(), lr=args.lr)
        self.step = 0
        self.edges = 0

    def train_step(self, x_src, dst, x_dst, label):
        self.opt.zero_grad(set_to_none=True)
        loss = F.cross_entropy(self.model(x_src, dst, x_dst), label)
        loss.backward()
        self.opt.step()
        self.step += 1
        self.edges += len(dst)
        return loss.item()

    def epoch(self, number):
        t0, start = time.monotonic(), self.step
        for batch in self.loader:
            loss = self.train_step(*batch)
            if self.rank == 0 and self.step % self.args.log_every == 0:
                rate = (self.step - start) / (time.monotonic() - t0)
                log.info("epoch %d step %d loss %.3f, %.2f steps/s", number, self.step, loss, rate)


def run(rank, args, port):
    logging.basicConfig(level=logging.INFO,
                        format=f"%(asctime)s [rank {rank}] %(name)s %(message)s")
    signal.alarm(args.walltime)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}",
                            rank=rank, world_size=args.ranks)
    graph = build_graph(args.nodes, args.avg_degree, args.dim, args.classes, args.seed)
    seeds = partition(graph, args.ranks)[rank]
    log.info("pid %d, partition of %d training nodes, ids %d..%d", os.getpid(), len(seeds),
             seeds[0], seeds[-1])
    trainer = Trainer(args, rank, graph, seeds)
    for number in range(1, args.epochs + 1):
        trainer.epoch(number)
    dist.destroy_process_group()


def main():
    args = parse_args()
    signal.alarm(args.walltime + 5)
    mp.spawn(run, args=(args, free_port()), nprocs=args.ranks)


if __name__ == "__main__":
    main()
