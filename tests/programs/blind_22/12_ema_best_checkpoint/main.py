"""Data parallel classifier training (gloo) that keeps the best averaged weights."""
import argparse
import logging
import os
import socket
import tempfile
import threading
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn import functional as F

from data import TeacherData
from ema import ShardedEMA, save_best

log = logging.getLogger("train")


class Trainer:
    def __init__(self, args, rank):
        self.args = args
        self.rank = rank
        self.world = dist.get_world_size()
        torch.manual_seed(3)
        self.model = nn.Sequential(nn.Linear(48, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU(),
                                   nn.Linear(128, 6))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.lr)
        self.data = TeacherData()
        self.train_gen = torch.Generator().manual_seed(1000 + rank)
        self.val_gen = torch.Generator().manual_seed(5000 + rank)
        self.ema = ShardedEMA(self.model)
        self.best = float("inf")

    def sync_gradients(self):
        flat = torch.cat([p.grad.reshape(-1) for p in self.model.parameters()])
        dist.all_reduce(flat)
        flat /= self.world
        offset = 0
        for p in self.model.parameters():
            p.grad.copy_(flat[offset:offset + p.numel()].view_as(p))
            offset += p.numel()

    def train_epoch(self):
        self.model.train()
        running = 0.0
        for _ in range(self.args.steps_per_epoch):
            x, y = self.data.sample(self.args.batch_size, self.train_gen)
            loss = F.cross_entropy(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.sync_gradients()
            self.optimizer.step()
            self.ema.update()
            running += loss.item()
            time.sleep(self.args.io_delay)
        return running / self.args.steps_per_epoch

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        total = torch.zeros(2)
        for _ in range(self.args.val_batches):
            x, y = self.data.sample(self.args.batch_size, self.val_gen)
            total[0] += F.cross_entropy(self.model(x), y, reduction="sum")
            total[1] += len(y)
        mean = total[0] / total[1]
        dist.reduce(mean, dst=0, op=dist.ReduceOp.SUM)
        return mean.item() / self.world

    def fit(self, path):
        for epoch in range(self.args.epochs):
            train_loss = self.train_epoch()
            val_loss = self.validate()
            if self.rank == 0:
                log.info("epoch %d train %.4f val %.4f best %.4f", epoch, train_loss, val_loss, self.best)
            if val_loss < self.best:
                self.best = val_loss
                save_best(self.ema, path, epoch, val_loss)


def run(rank, args, port, outdir):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank{rank} %(message)s")
    threading.Thread(target=lambda: (time.sleep(args.time_limit), os._exit(0)), daemon=True).start()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank,
                            world_size=args.world_size)
    Trainer(args, rank).fit(os.path.join(outdir, "best.pt"))
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world-size", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=500)
    parser.add_argument("--steps-per-epoch", type=int, default=15)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--val-batches", type=int, default=4)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--io-delay", type=float, default=0.015)
    parser.add_argument("--time-limit", type=float, default=130.0)
    args = parser.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="ema_ckpt_") as outdir:
        mp.spawn(run, args=(args, port, outdir), nprocs=args.world_size, join=True)


if __name__ == "__main__":
    main()
