import logging
import time
from collections import Counter

import numpy as np
import torch

log = logging.getLogger("replica")


def make_model(features):
    return torch.nn.Sequential(torch.nn.Linear(features, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))


class GradientAccumulator:
    """Takes gradients of the current step until there are enough; later ones of that step are stale."""

    def __init__(self, model, enough):
        self.params = list(model.parameters())
        self.enough = enough
        self.pending = []
        self.used, self.dropped = Counter(), Counter()

    def add(self, worker, at_step, grads, global_step):
        if at_step < global_step:
            self.dropped[worker] += 1
            return False
        self.used[worker] += 1
        self.pending.append(grads)
        return len(self.pending) >= self.enough

    def apply(self, opt):
        for p, *gs in zip(self.params, *self.pending):
            p.grad = torch.from_numpy(sum(gs) / len(gs))
        opt.step()
        self.pending.clear()


def worker_process(args, index, model, global_step, gradients, tokens, stop):
    torch.set_num_threads(1)
    rng = np.random.default_rng(index)
    g = torch.Generator().manual_seed(index)
    target = torch.randn(args.features, generator=torch.Generator().manual_seed(77))
    local_step = 0
    while not stop.is_set():
        if tokens.get() is None:
            break
        at_step = global_step.value
        x = torch.randn(args.batch, args.features, generator=g)
        loss = torch.nn.functional.mse_loss(model(x).squeeze(1), torch.sin(x @ target / 10))
        model.zero_grad()
        grads = torch.autograd.grad(loss, list(model.parameters()))
        time.sleep(args.step_time[index % len(args.step_time)] * rng.lognormal(0, args.jitter))
        local_step += 1
        gradients.put((index, at_step, [t.numpy() for t in grads], loss.item()))
        if local_step % 30 == 0:
            log.info("local step %d (global step %d)", local_step, global_step.value)
