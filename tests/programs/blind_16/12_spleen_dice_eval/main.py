import argparse
import logging
import os
import socket
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from data import DistributedSampler, SpleenVolumes
from metrics import DiceMetric


def parse_args():
    p = argparse.ArgumentParser(description="3d spleen segmentation, several processes")
    p.add_argument("--world-size", type=int, default=3)
    p.add_argument("--epochs", type=int, default=100)
    p.add_argument("--train-images", type=int, default=24)
    p.add_argument("--val-images", type=int, default=25)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--print-every", type=int, default=4)
    return p.parse_args()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def build_net():
    return nn.Sequential(nn.Conv3d(1, 8, 3, padding=1), nn.PReLU(),
                         nn.Conv3d(8, 8, 3, padding=1), nn.PReLU(), nn.Conv3d(8, 1, 1))


class Trainer:
    def __init__(self, rank, args):
        self.rank, self.args = rank, args
        self.log = logging.getLogger(f"rank{rank}")
        self.model = DistributedDataParallel(build_net())
        self.optim = torch.optim.Adam(self.model.parameters(), lr=args.lr)
        self.loss = nn.BCEWithLogitsLoss()
        train, val = SpleenVolumes(args.train_images, seed=1), SpleenVolumes(args.val_images, seed=2)
        self.train_sampler = DistributedSampler(train, rank, args.world_size, shuffle=True)
        val_sampler = DistributedSampler(val, rank, args.world_size, even_divisible=False)
        self.train_loader = DataLoader(train, batch_size=2, sampler=self.train_sampler)
        self.val_loader = DataLoader(val, batch_size=1, sampler=val_sampler)
        self.dice_metric = DiceMetric()

    def train_epoch(self, epoch):
        self.model.train()
        self.train_sampler.set_epoch(epoch)
        for image, label in self.train_loader:
            self.optim.zero_grad()
            loss = self.loss(self.model(image), label)
            loss.backward()
            self.optim.step()
        self.log.info("epoch %d train loss %.4f", epoch, loss.item())

    @torch.no_grad()
    def validate(self, epoch):
        self.model.eval()
        self.dice_metric.reset()
        for i, (image, label) in enumerate(self.val_loader):
            pred = (self.model.module(image) > 0).float()
            dice = self.dice_metric(pred, label)
            current = self.dice_metric.aggregate().item()
            if i % self.args.print_every == 0:
                self.log.info("epoch %d val %d/%d dice %.4f avg %.4f", epoch, i, len(self.val_loader),
                              dice.mean().item(), current)
        return self.dice_metric.aggregate().item()

    def fit(self):
        best = -1.0
        for epoch in range(self.args.epochs):
            self.train_epoch(epoch)
            score = self.validate(epoch)
            if self.rank == 0 and score > best:
                best = score
                self.log.info("epoch %d new best dice %.4f", epoch, best)


def worker(rank, port, args):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", rank=rank, world_size=args.world_size, timeout=timedelta(minutes=30))
    Trainer(rank, args).fit()
    dist.destroy_process_group()


def main():
    args = parse_args()
    mp.spawn(worker, args=(free_port(), args), nprocs=args.world_size)


if __name__ == "__main__":
    main()
