import logging
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F

from model import Net
from saver import AsyncSaver

log = logging.getLogger("trainer")


class Trainer:
    def __init__(self, args, rank, directory):
        self.args, self.rank, self.world = args, rank, args.world_size
        torch.manual_seed(args.seed)
        self.model = Net(args.dim, args.depth, args.classes)
        self.params = dict(self.model.named_parameters())
        self.momentum = {k: torch.zeros_like(p) for k, p in self.params.items()}
        self.gen = torch.Generator().manual_seed(args.seed + 1 + rank)
        self.centers = torch.randn(args.classes, args.dim)
        self.saver = AsyncSaver(directory, rank, self.world, args.chunk)

    def batch(self):
        y = torch.randint(self.args.classes, (self.args.batch_size,), generator=self.gen)
        x = self.centers[y] + 2 * torch.randn(y.numel(), self.args.dim, generator=self.gen)
        return x, y

    def sync_gradients(self):
        flat = torch.cat([p.grad.view(-1) for p in self.params.values()])
        dist.all_reduce(flat)
        flat.div_(self.world)
        for p, part in zip(self.params.values(),
                           flat.split([p.numel() for p in self.params.values()])):
            p.grad.copy_(part.view_as(p))

    @torch.no_grad()
    def update(self):
        for name, p in self.params.items():
            buf = self.momentum[name]
            buf.mul_(0.9).add_(p.grad).add_(p, alpha=self.args.weight_decay)
            p.add_(buf, alpha=-self.args.lr)
            p.grad.zero_()

    def state(self):
        state = {f"model.{k}": v for k, v in self.params.items()}
        state.update({f"optim.{k}": v for k, v in self.momentum.items()})
        return state

    def fit(self):
        mark, last = time.time(), 0
        for step in range(1, self.args.steps + 1):
            x, y = self.batch()
            loss = F.cross_entropy(self.model(x), y)
            loss.backward()
            self.sync_gradients()
            self.update()
            if step % self.args.save_every == 0:
                self.saver.maybe_save(step, self.state())
            now = time.time()
            if self.rank == 0 and now - mark > 2:
                log.info("step %d loss %.3f, %.1f steps/s", step, loss.item(),
                         (step - last) / (now - mark))
                mark, last = now, step
