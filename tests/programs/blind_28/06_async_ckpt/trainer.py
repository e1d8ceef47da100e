import logging
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from checkpoint import AsyncCheckpointer

log = logging.getLogger("trainer")


class Recipe:
    def __init__(self, args, root):
        self.args = args
        torch.manual_seed(0)
        width = args.width
        self.model = DistributedDataParallel(
            nn.Sequential(nn.Linear(64, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 10))
        )
        self.optim = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.checkpointer = AsyncCheckpointer(root)
        self.gen = torch.Generator().manual_seed(1000 + dist.get_rank())

    def batch(self):
        x = torch.randn(32, 64, generator=self.gen)
        return x, x[:, :10].argmax(-1)

    def train_step(self):
        x, y = self.batch()
        loss = nn.functional.cross_entropy(self.model(x), y)
        self.optim.zero_grad()
        loss.backward()
        self.optim.step()
        return loss.item()

    def staged_optimizer_state(self):
        state = self.optim.state_dict()
        time.sleep(self.args.staging_time)
        return {
            "param_groups": state["param_groups"],
            "state": {k: {n: t.clone() for n, t in v.items()} for k, v in state["state"].items()},
        }

    def save_checkpoint(self, step):
        self.checkpointer.save(f"model-{step:05d}", self.model.module.state_dict())
        self.checkpointer.save(f"optim-{step:05d}", self.staged_optimizer_state())

    def run(self):
        for step in range(1, self.args.steps + 1):
            loss = self.train_step()
            self.checkpointer.check()
            if step % 10 == 0 and dist.get_rank() == 0:
                log.info("step %d loss %.3f", step, loss)
            if step % self.args.save_every == 0:
                self.save_checkpoint(step)
                log.info("rank %d: checkpoint %d on its way", dist.get_rank(), step)
            time.sleep(self.args.data_time)
