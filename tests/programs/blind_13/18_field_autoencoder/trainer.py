"""A trainer in the manner of the usual one: fit, save_checkpoint, barrier."""
import logging
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def make_optimizer(module):
    return torch.optim.AdamW(module.parameters(), lr=1e-3)


class Trainer:
    def __init__(self, args):
        self.args = args
        self.rank = dist.get_rank()
        self.model = None
        self.log = logging.getLogger("trainer")

    @property
    def is_global_zero(self):
        return self.rank == 0

    def barrier(self, name=None):
        self.log.debug("barrier %s", name)
        dist.barrier()

    def batches(self, generator):
        size = self.args.grid ** 2
        for _ in range(self.args.steps_per_epoch):
            x = torch.randn(self.args.batch, size, generator=generator).cumsum(1) / size ** 0.5
            time.sleep(0.05)
            yield x, x.roll(1, dims=1)

    def fit(self, module, loss_fn, epochs):
        self.model = DistributedDataParallel(module)
        opt = make_optimizer(module)
        generator = torch.Generator().manual_seed(1000 + self.rank)
        for epoch in range(epochs):
            for x, y in self.batches(generator):
                loss = loss_fn(self.model, x, y)
                opt.zero_grad()
                loss.backward()
                opt.step()
            if self.is_global_zero:
                self.log.info("epoch %d loss %.4f", epoch, loss.item())

    def save_checkpoint(self, path):
        state = {"state_dict": self.model.module.state_dict()}
        if self.is_global_zero:
            torch.save(state, path)
        self.barrier("Trainer.save_checkpoint")
