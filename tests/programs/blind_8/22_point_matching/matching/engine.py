import logging

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from .data import PairSource
from .meters import MeterBoard

log = logging.getLogger("matching")


class PointEncoder(nn.Module):
    def __init__(self, dim=192):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(3, dim), nn.ReLU(), nn.Linear(dim, dim))

    def forward(self, src, dst):
        a, b = self.mlp(src), self.mlp(dst)
        return a @ b.T / a.shape[-1] ** 0.5


class MatchingTrainer:
    def __init__(self, rank, args):
        self.rank = rank
        self.args = args
        self.model = DistributedDataParallel(PointEncoder())
        self.opt = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.board = MeterBoard("loss", "recall", "spread")
        self.source = PairSource(rank, args.points)

    def spread(self, src):
        feats = self.model.module.mlp(src)
        return torch.cdist(feats, feats).mean()

    def train_epoch(self, epoch):
        self.board.reset()
        for step in range(self.args.steps_per_epoch):
            src, dst, target = self.source.next()
            logits = self.model(src, dst)
            loss = nn.functional.cross_entropy(logits, target)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            recall = (logits.argmax(-1) == target).float().mean()
            self.board.update(loss=loss.item(), recall=recall.item(), spread=self.spread(src))
            if self.rank == 0 and step % 20 == 0:
                log.info("epoch %d step %d %s", epoch, step, self.board)


def worker(rank, args):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{args.port}", rank=rank, world_size=args.world_size)
    trainer = MatchingTrainer(rank, args)
    for epoch in range(args.epochs):
        trainer.train_epoch(epoch)
    dist.destroy_process_group()
