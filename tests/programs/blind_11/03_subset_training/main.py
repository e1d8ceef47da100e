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

from data import build_loader
from model import KeywordNet


def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--world-size", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--speakers", type=int, default=80)
    parser.add_argument("--per-speaker", type=int, default=45)
    parser.add_argument("--fraction", type=float, default=0.5)
    parser.add_argument("--min-len", type=int, default=60)
    parser.add_argument("--max-len", type=int, default=320)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--checkpoint", default="last.ckpt")
    return parser.parse_args()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Trainer:
    def __init__(self, args, rank):
        self.args = args
        self.rank = rank
        self.log = logging.getLogger(f"rank{rank}")
        self.loader = build_loader(args, rank, args.world_size)
        self.model = DDP(KeywordNet())
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.lr)
        self.criterion = nn.CrossEntropyLoss()

    def train_epoch(self, epoch):
        total, started = 0.0, time.time()
        for step, (feats, labels) in enumerate(self.loader):
            loss = self.criterion(self.model(feats), labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.item()
            if self.rank == 0 and step % 25 == 0:
                self.log.info("Epoch %d: %d/%d loss=%.3f (%.1fs)", epoch, step, len(self.loader), loss.item(),
                              time.time() - started)
        return total / len(self.loader)

    def fit(self):
        for epoch in range(self.args.epochs):
            mean_loss = self.train_epoch(epoch)
            if self.rank == 0:
                torch.save(self.model.module.state_dict(), self.args.checkpoint)
            dist.barrier()
            self.log.info("Epoch %d finished, loss %.4f", epoch, mean_loss)


def run(rank, args, port):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=args.world_size)
    Trainer(args, rank).fit()
    dist.destroy_process_group()


if __name__ == "__main__":
    args = get_args()
    port = free_port()
    ranks = []
    for rank in range(args.world_size):
        p = mp.Process(target=run, args=(rank, args, port))
        p.start()
        ranks.append(p)
    for p in ranks:
        p.join()
