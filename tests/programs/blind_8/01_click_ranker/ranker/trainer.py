import logging
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from .data import ClickLog

log = logging.getLogger("ranker")


class Ranker(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(features, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, 1),
        )

    def forward(self, x):
        return self.net(x).squeeze(-1)


class Trainer:
    def __init__(self, args, rank):
        self.rank = rank
        self.args = args
        self.model = DistributedDataParallel(Ranker(64, args.hidden))
        self.opt = torch.optim.SGD(self.model.parameters(), lr=args.lr)
        self.loss_fn = nn.BCEWithLogitsLoss()
        self.loader = DataLoader(ClickLog(rank, args.world_size), batch_size=args.batch_size)

    def train_epoch(self):
        total, steps = 0.0, 0
        for x, y in self.loader:
            self.opt.zero_grad()
            loss = self.loss_fn(self.model(x), y)
            loss.backward()
            self.opt.step()
            total += loss.item()
            steps += 1
        return {"rank": self.rank, "loss": total / steps, "steps": steps}

    def fit(self):
        for epoch in range(self.args.epochs):
            start = time.time()
            stats = self.train_epoch()
            gathered = [None] * self.args.world_size
            dist.all_gather_object(gathered, stats)
            if self.rank == 0:
                mean = sum(s["loss"] for s in gathered) / len(gathered)
                log.info("epoch %d loss %.4f (%.1fs)", epoch, mean, time.time() - start)


def run_worker(rank, args):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.manual_seed(0)
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{args.port}",
        rank=rank,
        world_size=args.world_size,
    )
    if rank == 0:
        log.info("training on %d ranks", args.world_size)
    Trainer(args, rank).fit()
    dist.destroy_process_group()
