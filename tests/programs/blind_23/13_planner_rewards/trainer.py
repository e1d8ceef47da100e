import logging
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from data import ReplayBuffer
from losses import RewardWeightedObjective

log = logging.getLogger("planner")


class Planner(nn.Module):
    def __init__(self, features=96, hidden=256, horizon=40):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(features, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU())
        self.mean = nn.Linear(hidden, horizon)
        self.log_std = nn.Linear(hidden, horizon)

    def forward(self, scene):
        x = self.trunk(scene)
        return self.mean(x), self.log_std(x).clamp(-3, 1)


class EpochMeter:
    """Collects what an epoch reports; scalars are averaged, per sample values gathered."""

    def __init__(self, device="cpu"):
        self.scalars = {}
        self.samples = {}
        self.batches = 0
        self.device = device

    def update(self, scalars, samples):
        for name, value in scalars.items():
            self.scalars[name] = self.scalars.get(name, 0.0) + float(value)
        for name, value in samples.items():
            self.samples.setdefault(name, []).append(value)
        self.batches += 1

    def reduce(self):
        world = dist.get_world_size()
        report = {}
        for name in set(self.scalars) | set(self.samples):
            if name in self.samples:
                mine = torch.cat(self.samples[name])
                parts = [torch.empty_like(mine) for _ in range(world)]
                dist.all_gather(parts, mine)
                report[name] = torch.cat(parts).quantile(0.9).item()
            else:
                total = torch.tensor([self.scalars[name], self.batches], dtype=torch.float64)
                dist.all_reduce(total)
                report[name] = (total[0] / total[1]).item()
        return report


class ReplayTrainer:
    def __init__(self, rank, args):
        self.rank, self.args = rank, args
        torch.manual_seed(args.seed)
        self.model = DistributedDataParallel(Planner())
        self.objective = RewardWeightedObjective()
        self.optim = torch.optim.AdamW(self.model.parameters(), lr=args.lr)
        self.buffer = ReplayBuffer(rank, args.scenes)

    def replay_epoch(self, epoch):
        meter = EpochMeter()
        for batch in self.buffer.batches(self.args.batch_size):
            loss, scalars, samples = self.objective(self.model, batch)
            self.optim.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optim.step()
            meter.update(scalars, samples)
        log.info("rank %d epoch %d: %d batches replayed", self.rank, epoch, meter.batches)
        return meter.reduce()

    def fit(self):
        for epoch in range(self.args.epochs):
            began = time.perf_counter()
            report = self.replay_epoch(epoch)
            if self.rank == 0:
                shown = " ".join(f"{k}={v:.3f}" for k, v in sorted(report.items()))
                log.info("epoch %d %.1fs %s", epoch, time.perf_counter() - began, shown)
