import logging
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from documents import DocumentGraphs, collate

log = logging.getLogger("relations")


@dataclass
class Config:
    epochs: int = 60
    batches_per_epoch: int = 30
    batch_size: int = 8
    max_bad_batches: int = 4
    lr: float = 1e-3


class RelationScorer(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.pair = nn.Sequential(nn.Linear(2 * dim, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, heads, tails):
        return self.pair(torch.cat([heads, tails], dim=-1)).squeeze(-1)


class ShardedLoader:
    """Dataloader that puts every rank on the same shuffling seed at the start of an epoch."""

    def __init__(self, dataset, cfg):
        self.sampler = DistributedSampler(dataset, shuffle=True)
        self.loader = DataLoader(dataset, batch_size=cfg.batch_size, sampler=self.sampler,
                                 collate_fn=collate, drop_last=True)

    def synchronize_rng(self):
        seed = torch.randint(0, 2 ** 31, (1,))
        dist.broadcast(seed, src=0)
        self.sampler.seed = int(seed)

    def __iter__(self):
        self.synchronize_rng()
        return iter(self.loader)


def usable(batch):
    return batch is not None and len(batch["heads"]) > 0


def train_epoch(model, loader, opt, cfg, epoch):
    bad = steps = 0
    total = 0.0
    for batch in loader:
        if not usable(batch):
            bad += 1
            if bad >= cfg.max_bad_batches:
                log.info("epoch %d: %d unusable batches, next epoch", epoch, bad)
                break
            batch = {"heads": torch.zeros(1, 32), "tails": torch.zeros(1, 32),
                     "labels": torch.zeros(1)}
        scores = model(batch["heads"], batch["tails"])
        loss = nn.functional.binary_cross_entropy_with_logits(scores, batch["labels"])
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
        steps += 1
        time.sleep(0.02)
    return total / max(steps, 1), steps


def run(cfg):
    torch.set_num_threads(1)
    torch.manual_seed(28)
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    dataset = DocumentGraphs(cfg.batches_per_epoch * cfg.batch_size * world)
    model = DistributedDataParallel(RelationScorer())
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    loader = ShardedLoader(dataset, cfg)
    for epoch in range(cfg.epochs):
        loader.sampler.set_epoch(epoch)
        loss, steps = train_epoch(model, loader, opt, cfg, epoch)
        log.info("epoch %d: loss %.4f after %d steps", epoch, loss, steps)
    dist.destroy_process_group()
