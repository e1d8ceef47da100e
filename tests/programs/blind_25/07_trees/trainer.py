import logging
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F

from housekeeping import GarbageCollection
from model import TreeEncoder
from trees import TreeSource

log = logging.getLogger("trainer")


class Trainer:
    def __init__(self, args, rank):
        self.args, self.rank = args, rank
        torch.manual_seed(args.seed)
        self.model = TreeEncoder(args.dim, args.hidden)
        self.params = list(self.model.parameters())
        self.source = TreeSource(args.dim, args.depth, args.seed + 1 + rank)
        self.gc = GarbageCollection(args.gc_freq)

    def loss(self, source, n):
        roots = source.batch(n)
        target = torch.tensor([r.evaluate() for r in roots])
        return F.mse_loss(self.model(roots), target)

    def train_step(self):
        loss = self.loss(self.source, self.args.batch_size)
        grads = torch.autograd.grad(loss, self.params)
        flat = torch.cat([g.reshape(-1) for g in grads])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        with torch.no_grad():
            for p, g in zip(self.params, flat.split([p.numel() for p in self.params])):
                p.add_(g.view_as(p), alpha=-self.args.lr)
        return loss.item()

    @torch.no_grad()
    def evaluate(self):
        """Only rank 0 evaluates; the others wait for it."""
        result = torch.zeros(1)
        if self.rank == 0:
            held_out = TreeSource(self.args.dim, self.args.depth, 0)
            losses = [self.loss(held_out, self.args.batch_size).item() for _ in range(self.args.eval_batches)]
            result[0] = sum(losses) / len(losses)
        dist.broadcast(result, src=0)
        return result.item()

    def fit(self):
        mark = time.time()
        for step in range(1, self.args.steps + 1):
            loss = self.train_step()
            self.gc.run(step)
            if step % 10 == 0 and self.rank == 0:
                log.info("step %d loss %.4f (%.2f s for 10 steps)", step, loss,
                         time.time() - mark)
                mark = time.time()
            if step % self.args.eval_every == 0:
                start = time.time()
                held_out = self.evaluate()
                if self.rank == 0:
                    log.info("step %d held-out loss %.4f (evaluation took %.1f s)", step,
                             held_out, time.time() - start)
                    mark = time.time()
