import json
import logging
import time
from pathlib import Path

import torch
import torch.distributed as dist

from model import SparseCoder

log = logging.getLogger("sae.trainer")


class SaeTrainer:
    def __init__(self, cfg, rank: int, world_size: int):
        self.cfg = cfg
        self.rank = rank
        self.world_size = world_size
        torch.manual_seed(7)
        self.model = SparseCoder(cfg.d_in, cfg.latents, cfg.k)
        self.generator = torch.Generator().manual_seed(100 + rank)
        self.fired = torch.zeros(cfg.latents)
        self.out = Path(cfg.out)

    def _average_grads(self):
        for p in self.model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= self.world_size

    def step(self, i: int) -> float:
        x = torch.randn(self.cfg.batch, self.cfg.d_in, generator=self.generator)
        recon, sparse = self.model(x)
        loss = (recon - x).pow(2).mean()
        self.model.zero_grad()
        loss.backward()
        self._average_grads()
        with torch.no_grad():
            for p in self.model.parameters():
                p -= self.cfg.lr * p.grad
        self.fired += (sparse > 0).sum(0)
        return loss.item()

    def save(self, step: int):
        if self.rank != 0:
            return
        path = self.out / f"step_{step}"
        path.mkdir(parents=True, exist_ok=True)
        torch.save(self.model.state_dict(), path / "sae.pt")
        dead = int((self.fired == 0).sum())
        (path / "cfg.json").write_text(json.dumps({"k": self.cfg.k, "dead": dead}))
        dist.barrier()
        log.info("saved %s (%d silent latents)", path, dead)

    def fit(self):
        for i in range(1, self.cfg.steps + 1):
            loss = self.step(i)
            if self.rank == 0 and i % 10 == 0:
                log.info("step %d loss %.4f", i, loss)
            if i % self.cfg.save_every == 0:
                self.save(i)
            time.sleep(0.05)
