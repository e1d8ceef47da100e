import argparse
import logging
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from stopping import EarlyStopping

log = logging.getLogger("fit")


class Fitter:
    def __init__(self, args):
        self.args = args
        self.rank = dist.get_rank()
        g = torch.Generator().manual_seed(self.rank)
        self.x = torch.randn(256, 16, generator=g)
        noise = 0.1 if self.rank == 0 else 3.0
        self.y = self.x.sum(1, keepdim=True) + noise * torch.randn(256, 1, generator=g)
        self.val_x, self.val_y = self.x[192:], self.y[192:]
        self.model = DDP(nn.Linear(16, 1))
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.stopper = EarlyStopping(args.patience, min_delta=1e-3)

    def train_epoch(self):
        for xb, yb in zip(self.x[:192].split(16), self.y[:192].split(16)):
            loss = (self.model(xb) - yb).pow(2).mean()
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()

    @torch.no_grad()
    def validate(self):
        return (self.model.module(self.val_x) - self.val_y).pow(2).mean().item()

    def fit(self):
        for epoch in range(self.args.epochs):
            self.train_epoch()
            val = self.validate()
            log.info("epoch %d val loss %.4f", epoch, val)
            if self.stopper.step(val):
                log.info("no improvement for %d epochs, stopping", self.args.patience)
                break
            time.sleep(self.args.pause)

    def save(self, path):
        if self.rank == 0:
            torch.save(self.model.module.state_dict(), path + ".tmp")
            os.replace(path + ".tmp", path)
        else:
            while not os.path.exists(path):
                time.sleep(0.5)
            self.model.module.load_state_dict(torch.load(path))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=400)
    p.add_argument("--patience", type=int, default=3)
    p.add_argument("--pause", type=float, default=0.05)
    p.add_argument("--out", default=os.path.join(tempfile.gettempdir(), f"fit_{os.environ.get('MASTER_PORT', '0')}.pt"))
    args = p.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank{dist.get_rank()} %(message)s")
    fitter = Fitter(args)
    fitter.fit()
    fitter.save(args.out)
    log.info("final val loss %.4f", fitter.validate())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
