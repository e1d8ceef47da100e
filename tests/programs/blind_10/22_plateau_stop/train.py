import argparse
import logging
import os
import time

import torch
import torch.distributed as dist
from torch import nn

from stopping import PlateauStopper

log = logging.getLogger("plateau")


def make_split(rank, count, noisy):
    gen = torch.Generator().manual_seed(20 + rank)
    x = torch.randn(count, 16, generator=gen)
    y = (x[:, :4].sum(1) > 0).long()
    if noisy:
        y = torch.randint(0, 2, (count,), generator=gen)
    return x, y


def average_gradients(model):
    grads = [p.grad for p in model.parameters()]
    flat = torch.cat([g.flatten() for g in grads])
    dist.all_reduce(flat)
    for g, part in zip(grads, flat.split([g.numel() for g in grads])):
        g.copy_(part.view_as(g) / dist.get_world_size())


class Trainer:
    def __init__(self, rank, args):
        self.rank = rank
        self.args = args
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))
        self.train_x, self.train_y = make_split(rank, 640, noisy=False)
        self.val_x, self.val_y = make_split(100 + rank, 200, noisy=rank == args.noisy_site)
        self.stopper = PlateauStopper(args.patience, args.min_delta)

    def train_epoch(self):
        self.model.train()
        for xb, yb in zip(self.train_x.split(64), self.train_y.split(64)):
            loss = nn.functional.cross_entropy(self.model(xb), yb)
            self.model.zero_grad()
            loss.backward()
            average_gradients(self.model)
            with torch.no_grad():
                for p in self.model.parameters():
                    p.sub_(p.grad, alpha=self.args.lr)
            time.sleep(0.01)

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        return nn.functional.cross_entropy(self.model(self.val_x), self.val_y).item()

    def fit(self):
        for epoch in range(self.args.epochs):
            self.train_epoch()
            val = self.validate()
            log.info("rank %d epoch %d val %.4f", self.rank, epoch, val)
            if self.stopper.should_stop(val):
                log.info("rank %d stops, best %.4f", self.rank, self.stopper.best)
                break


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=400)
    parser.add_argument("--lr", type=float, default=0.03)
    parser.add_argument("--patience", type=int, default=2)
    parser.add_argument("--min-delta", type=float, default=1e-5)
    parser.add_argument("--noisy-site", type=int, default=1)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    trainer = Trainer(rank, args)
    trainer.fit()
    dist.barrier()
    if rank == 0:
        log.info("final model, norm %.3f", sum(p.norm().item() for p in trainer.model.parameters()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
