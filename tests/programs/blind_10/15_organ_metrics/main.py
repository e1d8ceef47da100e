"""Organ classification, one rank per clinical site."""
import argparse
import logging
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader

from data import ORGANS, OrganPatches
from metrics import OrganRecall

log = logging.getLogger("organs")


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def average_gradients(model):
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


class SiteTrainer:
    def __init__(self, rank, args):
        self.rank = rank
        self.train_loader = DataLoader(OrganPatches(rank, args.patches), batch_size=args.batch_size, shuffle=True)
        self.val_loader = DataLoader(OrganPatches(rank, args.patches // 4), batch_size=args.batch_size)
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, len(ORGANS)))
        self.lr = args.lr

    def train(self):
        self.model.train()
        for x, y in self.train_loader:
            loss = nn.functional.cross_entropy(self.model(x), y)
            self.model.zero_grad()
            loss.backward()
            average_gradients(self.model)
            with torch.no_grad():
                for p in self.model.parameters():
                    p.sub_(p.grad, alpha=self.lr)
            time.sleep(0.02)
        return loss.item()

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        recall = OrganRecall()
        for x, y in self.val_loader:
            recall.update(self.model(x).argmax(1), y)
        return recall.compute()


def run_rank(rank, args, port):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=args.world)
    trainer = SiteTrainer(rank, args)
    for epoch in range(args.epochs):
        loss = trainer.train()
        log.info("rank %d epoch %d loss %.3f", rank, epoch, loss)
        recall = trainer.validate()
        dist.barrier()
        if rank == 0:
            log.info("epoch %d recall %s", epoch, {k: round(v, 3) for k, v in recall.items()})
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--patches", type=int, default=640)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()
    mp.spawn(run_rank, args=(args, free_port()), nprocs=args.world)


if __name__ == "__main__":
    main()
