"""Distributed training of the detector."""
import argparse
import logging
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from data import Annotations, collate
from model import Detector


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--world-size", type=int, default=3)
    p.add_argument("--images", type=int, default=6000)
    p.add_argument("--image-size", type=int, default=96)
    p.add_argument("--batch-size", type=int, default=3)
    p.add_argument("--epochs", type=int, default=50)
    p.add_argument("--lr", type=float, default=0.01)
    p.add_argument("--seed", type=int, default=11)
    return p.parse_args()


class Trainer:
    def __init__(self, rank, args):
        self.rank = rank
        self.args = args
        self.log = logging.getLogger(f"rank{rank}")
        dataset = Annotations(args.images, args.image_size, args.seed)
        self.sampler = DistributedSampler(dataset, shuffle=True, seed=args.seed)
        self.loader = DataLoader(dataset, args.batch_size, sampler=self.sampler, collate_fn=collate,
                                 drop_last=True)
        torch.manual_seed(args.seed)
        self.model = DistributedDataParallel(Detector(), find_unused_parameters=True)
        self.opt = torch.optim.SGD(self.model.parameters(), lr=args.lr, momentum=0.9)

    def train_epoch(self, epoch):
        self.sampler.set_epoch(epoch)
        t0 = time.monotonic()
        for step, (images, targets) in enumerate(self.loader):
            losses = self.model(images, targets)
            loss = sum(losses.values())
            self.opt.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
            self.opt.step()
            if step % 20 == 0:
                self.log.info("epoch %d step %d loss %.3f (%.1f s)", epoch, step, loss.item(),
                              time.monotonic() - t0)


def worker(rank, args, port):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=args.world_size)
    trainer = Trainer(rank, args)
    for epoch in range(args.epochs):
        trainer.train_epoch(epoch)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    args = parse_args()
    mp.start_processes(worker, (args, free_port()), nprocs=args.world_size, start_method="fork")
