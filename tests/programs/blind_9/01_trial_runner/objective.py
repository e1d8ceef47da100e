import logging
import multiprocessing as mp
import time

import torch
from torch import nn

from optim import MomentumSgd

log = logging.getLogger("objective")


def make_regression(seed, n=4096, dim=24):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, dim, generator=g)
    w = torch.randn(dim, 1, generator=g)
    return x, torch.tanh(x @ w) + 0.1 * torch.randn(n, 1, generator=g)


class Mlp(nn.Module):
    def __init__(self, dim, width):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, x):
        return self.net(x)


def _fit_fold(config, fold, conn):
    torch.set_num_threads(1)
    x, y = make_regression(fold)
    model = Mlp(x.shape[1], config["width"])
    opt = MomentumSgd(model.parameters(), lr=config["lr"] * 0.1)
    deadline = time.monotonic() + config["fold_seconds"]
    while time.monotonic() < deadline:
        idx = torch.randint(0, len(x), (256,))
        loss = nn.functional.mse_loss(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        time.sleep(0.005)
    conn.send(loss.item())
    conn.close()


class CrossValidation:
    """Fits every fold in a fresh process, so that folds cannot share state."""

    def __init__(self, slots, folds):
        self.slots = slots
        self.folds = folds
        self.ctx = mp.get_context("fork")

    def score(self, trial_id, config):
        losses = []
        for fold in range(self.folds):
            with self.slots.claim(f"trial {trial_id} fold {fold}"):
                parent, child = self.ctx.Pipe(duplex=False)
                p = self.ctx.Process(target=_fit_fold, args=(config, fold, child),
                                     name=f"fold-{trial_id}-{fold}")
                p.start()
                child.close()
                losses.append(parent.recv())
                p.join()
        return sum(losses) / len(losses)
