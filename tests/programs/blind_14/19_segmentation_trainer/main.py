"""Train a small segmentation network on several ranks, with a validation after every epoch."""
import argparse
import logging
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

from logger import LoggerConnector
from module import SegmentationModule


class Trainer:
    def __init__(self, rank, args):
        self.args = args
        self.rank = rank
        self.log = logging.getLogger(f"rank{rank}")
        torch.manual_seed(args.seed)
        self.logger = LoggerConnector(rank, args.world_size)
        self.module = SegmentationModule(args.classes, rank, args.world_size, self.logger)
        self.net = DistributedDataParallel(self.module)
        self.opt = torch.optim.AdamW(self.module.parameters(), lr=args.lr)
        self.gen = torch.Generator().manual_seed(args.seed + rank)

    def batch(self):
        y = torch.randint(0, self.args.classes, (self.args.batch_size, 8, 8), generator=self.gen)
        y = y.repeat_interleave(4, 1).repeat_interleave(4, 2)
        x = torch.stack([torch.cos(y * k) for k in (0.5, 1.0, 1.7)], 1)
        return x + 0.5 * torch.randn(x.shape, generator=self.gen), y

    def fit(self):
        for epoch in range(self.args.epochs):
            self.module.train()
            for step in range(self.args.steps):
                loss = self.module.training_step(self.net, self.batch())
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                if step % 20 == 0:
                    self.log.info("epoch %d step %d loss %.4f", epoch, step, loss.item())
            self.module.eval()
            with torch.no_grad():
                losses = [self.module.validation_step(self.batch()) for _ in range(self.args.val_steps)]
            self.module.validation_epoch_end(losses)
            self.logger.flush(epoch)


def run(rank, args, port):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=args.world_size)
    Trainer(rank, args).fit()
    dist.destroy_process_group()


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--world-size", type=int, default=3)
    p.add_argument("--epochs", type=int, default=200)
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--val-steps", type=int, default=8)
    p.add_argument("--batch-size", type=int, default=4)
    p.add_argument("--classes", type=int, default=6)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=5)
    return p.parse_args()


if __name__ == "__main__":
    args = parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.start_processes(run, (args, port), nprocs=args.world_size, start_method="fork")
