"""Promptable organ segmentation: one query per organ that is visible in the crop."""
import argparse
import logging
import os
import socket
import sys
import threading
import time

import torch._dynamo  # before the fork: once instead of once per rank
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from model import QuerySegNet, dice_loss, dice_score
from volumes import ORGANS, AbdomenCrops

log = logging.getLogger("seg")


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--nprocs", type=int, default=3)
    p.add_argument("--epochs", type=int, default=40)
    p.add_argument("--cases", type=int, default=48)
    p.add_argument("--val-cases", type=int, default=6)
    p.add_argument("--crop", type=int, default=16)
    p.add_argument("--width", type=int, default=8)
    p.add_argument("--batch-size", type=int, default=2)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--log-every", type=int, default=2)
    p.add_argument("--job-limit", type=float, default=135.0, help="seconds until the queue takes the node back")
    p.add_argument("--seed", type=int, default=20)
    return p.parse_args()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class SegTrainer:
    def __init__(self, rank, args):
        self.rank = rank
        self.args = args
        self.metrics_group = dist.new_group(backend="gloo")
        torch.manual_seed(args.seed)
        self.net = DDP(QuerySegNet(len(ORGANS), args.width))
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=args.lr)
        train = AbdomenCrops(args.cases, args.crop, seed=args.seed)
        self.sampler = DistributedSampler(train, args.nprocs, rank, shuffle=True, seed=args.seed)
        self.train_loader = DataLoader(train, args.batch_size, sampler=self.sampler, drop_last=True)
        self.val = AbdomenCrops(args.val_cases, args.crop, seed=args.seed + 1)

    def train_epoch(self, epoch):
        self.net.train()
        self.sampler.set_epoch(epoch)
        started, queries, total = time.monotonic(), 0, 0.0
        for i, (image, labels) in enumerate(self.train_loader, 1):
            present = labels.flatten(2).any(dim=2).any(dim=0).nonzero().flatten().tolist()
            for organ in present:
                self.optimizer.zero_grad(set_to_none=True)
                logits = self.net(image, organ)
                loss = dice_loss(logits, labels[:, organ])
                loss.backward()
                self.optimizer.step()
                total += loss.item()
                queries += 1
            if i % self.args.log_every == 0:
                log.info("epoch %d batch %d/%d, %d queries, loss %.3f", epoch, i, len(self.train_loader),
                         queries, total / max(queries, 1))
        log.info("epoch %d trained in %.1f s", epoch, time.monotonic() - started)
        return total / max(queries, 1)

    @torch.no_grad()
    def validate(self):
        self.net.eval()
        score, count = torch.zeros(len(ORGANS)), torch.zeros(len(ORGANS))
        for n in range(self.rank, len(self.val), self.args.nprocs):
            image, labels = self.val[n]
            for organ in range(len(ORGANS)):
                if labels[organ].any():
                    logits = self.net.module(image[None], organ)
                    score[organ] += dice_score(logits, labels[None, organ])
                    count[organ] += 1
        both = torch.stack([score, count])
        dist.all_reduce(both, group=self.metrics_group)
        return both[0] / both[1].clamp(min=1)

    def fit(self):
        for epoch in range(self.args.epochs):
            loss = self.train_epoch(epoch)
            dice = self.validate()
            if self.rank == 0:
                log.info("epoch %d loss %.3f dice %s", epoch, loss,
                         " ".join(f"{name}={d:.2f}" for name, d in zip(ORGANS, dice.tolist())))


def job_limit(seconds):
    time.sleep(seconds)
    os._exit(0)


def worker(rank, args, port):
    logging.basicConfig(level=logging.INFO, stream=sys.stdout,
                        format=f"%(asctime)s rank{rank} %(levelname)s %(message)s")
    threading.Thread(target=job_limit, args=(args.job_limit,), daemon=True).start()
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=args.nprocs)
    SegTrainer(rank, args).fit()
    dist.destroy_process_group()


if __name__ == "__main__":
    cli = parse_args()
    mp.start_processes(worker, args=(cli, free_port()), nprocs=cli.nprocs, start_method="fork")
