import argparse
import logging
import os
import tempfile
import threading
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from dataset import ShotDataset, shard
from model import TCN

log = logging.getLogger("disrupt")


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--world", type=int, default=3)
    p.add_argument("--shots", type=int, default=288)
    p.add_argument("--valid-shots", type=int, default=96)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--lr", type=float, default=6e-3)
    p.add_argument("--factor", type=float, default=0.5)
    p.add_argument("--patience", type=int, default=1)
    p.add_argument("--valid-every", type=int, default=1)
    p.add_argument("--minutes", type=float, default=2.0)
    return p.parse_args()


class Experiment:
    def __init__(self, args, rank):
        self.args, self.rank = args, rank
        torch.manual_seed(1)
        train = ShotDataset(args.shots, seed=5)
        self.sampler = DistributedSampler(train, args.world, rank, shuffle=True, seed=2)
        self.train_loader = DataLoader(train, args.batch_size, sampler=self.sampler, drop_last=True)
        self.valid_loader = DataLoader(shard(ShotDataset(args.valid_shots, seed=6), rank, args.world), 16)
        self.model = DDP(TCN())
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.lr)
        self.scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
            self.optimizer, mode="min", factor=args.factor, patience=args.patience)

    def train(self, epoch):
        self.model.train()
        self.sampler.set_epoch(epoch)
        running = 0.0
        for x, y in self.train_loader:
            loss = F.binary_cross_entropy_with_logits(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            running += loss.item()
        return running / len(self.train_loader)

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        total_loss, correct, count = 0.0, 0.0, 0
        for x, y in self.valid_loader:
            out = self.model.module(x)
            total_loss += F.binary_cross_entropy_with_logits(out, y).item()
            correct += ((out > 0) == (y > 0.5)).float().sum().item()
            count += y.numel()
        total_loss /= len(self.valid_loader)
        return total_loss, correct / count

    def log_epoch(self, epoch, train_loss, total_loss, accuracy, seconds):
        stats = torch.tensor([train_loss, total_loss, accuracy])
        dist.all_reduce(stats)
        stats /= self.args.world
        if self.rank == 0:
            log.info("epoch %d train %.4f valid %.4f acc %.3f (%.1fs)", epoch, *stats.tolist(), seconds)
        norm = torch.sqrt(sum(p.detach().pow(2).sum() for p in self.model.parameters())).item()
        log.debug("epoch %d lr %.3g |w| %.5f", epoch, self.optimizer.param_groups[0]["lr"], norm)

    def run(self):
        end = time.time() + 60 * self.args.minutes
        epoch = 0
        stop = torch.zeros(1)
        while not stop.item():
            t = time.time()
            train_loss = self.train(epoch)
            if epoch % self.args.valid_every == 0:
                total_loss, accuracy = self.evaluate()
                self.scheduler.step(total_loss)
                self.log_epoch(epoch, train_loss, total_loss, accuracy, time.time() - t)
            epoch += 1
            stop.fill_(float(time.time() > end))
            dist.broadcast(stop, 0)


def worker(rank, args, rdzv):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [{rank}] %(message)s")
    log.setLevel(logging.DEBUG)
    guard = threading.Timer(145, os._exit, (1,))
    guard.daemon = True
    guard.start()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rdzv}", rank=rank, world_size=args.world)
    Experiment(args, rank).run()
    dist.destroy_process_group()


if __name__ == "__main__":
    args = parse()
    with tempfile.TemporaryDirectory() as tmp:
        mp.spawn(worker, args=(args, os.path.join(tmp, "rdzv")), nprocs=args.world)
