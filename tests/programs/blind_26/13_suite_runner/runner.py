"""A runner process: draws groups and runs the numerical cases of each."""
import logging
import os
import time

import torch
from torch import nn

from source import GroupSource

log = logging.getLogger("runner")


class CaseExecutor:
    def __init__(self, width=128):
        self.width = width

    def run(self, seed):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(self.width, self.width), nn.GELU(), nn.Linear(self.width, 1))
        params = list(model.parameters())
        x = torch.randn(64, self.width)
        y = x[:, :1].sin()
        end = time.monotonic() + 0.05
        while time.monotonic() < end:
            loss = (model(x) - y).pow(2).mean()
            grads = torch.autograd.grad(loss, params)
            with torch.no_grad():
                for p, g in zip(params, grads):
                    p -= 0.05 * g
        return bool(torch.isfinite(loss))


def run_tests(index, test_queue, result_queue):
    torch.set_num_threads(1)
    source = GroupSource(test_queue)
    executor = CaseExecutor()
    ran = 0
    while True:
        group = source.next_group()
        if group is None:
            break
        passed = sum(executor.run(group.seed + c) for c in range(group.cases))
        result_queue.put((index, group.name, passed, group.cases))
        ran += 1
    log.debug("runner %d pid %d ran %d groups", index, os.getpid(), ran)
