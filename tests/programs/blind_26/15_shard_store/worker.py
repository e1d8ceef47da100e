"""Trainer process: skip gram updates on the shared store."""
import random

import torch

from walks import WalkSampler


class SkipGram:
    def __init__(self, dim, lr):
        self.context = (torch.randn(dim, dim) / dim ** 0.5).requires_grad_()
        self.lr = lr

    def update(self, values):
        rows = values.clone().requires_grad_()
        scores = rows @ self.context @ rows.T
        target = torch.zeros_like(scores)
        target.diagonal(1).fill_(1.0)
        target.diagonal(-1).fill_(1.0)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(scores, target)
        grad_rows, grad_context = torch.autograd.grad(loss, (rows, self.context))
        with torch.no_grad():
            self.context -= self.lr * grad_context
        return loss.item(), rows.detach() - self.lr * grad_rows


def train(index, store, counters, args):
    torch.set_num_threads(1)
    torch.manual_seed(args.seed + index)
    sampler = WalkSampler(store.nodes, args.walk_length, args.hop_rate, args.seed + index)
    model = SkipGram(store.dim, args.lr)
    rng = random.Random(index)
    while True:
        walk = sampler.sample(rng.randrange(16))
        with store.transaction(walk) as tx:
            loss, values = model.update(tx.values)
            tx.commit(values)
        counters[index] += 1
