import logging
import math
import os
import time
from dataclasses import dataclass

import torch
from torch import nn

from errors import DivergenceError

log = logging.getLogger("sweep.scoring")


@dataclass(frozen=True)
class Candidate:
    ident: int
    lr: float
    hidden: int
    seed: int


@dataclass
class Score:
    ident: int
    loss: float
    seconds: float
    pid: int


def sgd_step(module, lr):
    with torch.no_grad():
        for p in module.parameters():
            p.sub_(p.grad, alpha=lr)
            p.grad = None


class CandidateTrainer:
    def __init__(self, candidate, epochs=6):
        self.candidate = candidate
        self.epochs = epochs
        gen = torch.Generator().manual_seed(candidate.seed)
        self.x = torch.randn(256, 12, generator=gen)
        self.y = self.x @ torch.randn(12, 1, generator=gen) * 3.0
        torch.manual_seed(candidate.seed)
        self.model = nn.Sequential(nn.Linear(12, candidate.hidden), nn.ReLU(), nn.Linear(candidate.hidden, 1))

    def run(self):
        loss_value = math.inf
        for epoch in range(self.epochs):
            for xb, yb in zip(self.x.split(32), self.y.split(32)):
                loss = nn.functional.mse_loss(self.model(xb), yb)
                loss.backward()
                sgd_step(self.model, self.candidate.lr)
            loss_value = loss.item()
            if not math.isfinite(loss_value) or loss_value > 1e6:
                raise DivergenceError(self.candidate.ident, epoch, loss_value)
            time.sleep(0.12)
        return loss_value


def init_worker(threads):
    torch.set_num_threads(threads)


def score_candidate(candidate):
    started = time.monotonic()
    loss = CandidateTrainer(candidate).run()
    return Score(candidate.ident, loss, time.monotonic() - started, os.getpid())
