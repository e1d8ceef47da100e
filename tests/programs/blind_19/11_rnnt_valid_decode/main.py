import argparse
import logging
import os
import tempfile
import threading
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from data import UtteranceSet
from decoder import TransducerBeamSearcher
from model import StatelessTransducer

log = logging.getLogger("asr")


def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        prev, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            prev, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, prev + (x != y))
    return row[-1]


class Trainer:
    def __init__(self, args, rank):
        self.args, self.rank = args, rank
        torch.manual_seed(7)
        self.net = StatelessTransducer()
        self.model = DDP(self.net)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=3e-3)
        self.loss = nn.CrossEntropyLoss()
        self.train_set = UtteranceSet(args.train_utts, args.frames, seed=10 + rank, laughter_every=5)
        self.valid_set = UtteranceSet(args.valid_utts, args.frames, seed=99, laughter_every=17)
        self.searcher = TransducerBeamSearcher(self.net, beam_size=args.beam)

    def train_epoch(self, epoch):
        self.model.train()
        order = torch.randperm(len(self.train_set)).tolist()
        total = 0.0
        for step, i in enumerate(order):
            x, prev, y = self.train_set.aligned_pairs(i)
            loss = self.loss(self.model(x, prev), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            total += loss.item()
            if self.rank == 0 and step % 40 == 0:
                log.info("epoch %d step %d loss %.3f", epoch, step, loss.item())
        return total / len(order)

    def validate(self, epoch):
        self.model.eval()
        errors = torch.zeros(2)
        for i in range(self.rank, len(self.valid_set), self.args.world):
            hyp = self.searcher(self.valid_set.features(i))
            ref = self.valid_set.reference(i)
            errors += torch.tensor([float(edit_distance(hyp, ref)), float(len(ref))])
        dist.all_reduce(errors)
        return (errors[0] / errors[1]).item()

    def fit(self):
        for epoch in range(self.args.epochs):
            t = time.time()
            loss = self.train_epoch(epoch)
            if self.rank == 0:
                log.info("epoch %d train loss %.3f (%.1fs), validating", epoch, loss, time.time() - t)
            ter = self.validate(epoch)
            if self.rank == 0:
                log.info("epoch %d token error rate %.3f", epoch, ter)


def run(rank, args, rdzv):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s " + f"[rank {rank}] " + "%(message)s")
    limit = threading.Timer(args.wall_time, os._exit, (0,))
    limit.daemon = True
    limit.start()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rdzv}", rank=rank, world_size=args.world)
    Trainer(args, rank).fit()
    dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--world", type=int, default=3)
    p.add_argument("--epochs", type=int, default=40)
    p.add_argument("--train-utts", type=int, default=200)
    p.add_argument("--valid-utts", type=int, default=32)
    p.add_argument("--frames", type=int, default=60)
    p.add_argument("--beam", type=int, default=4)
    p.add_argument("--wall-time", type=float, default=130.0)
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        mp.spawn(run, args=(args, os.path.join(tmp, "rdzv")), nprocs=args.world)


if __name__ == "__main__":
    main()
