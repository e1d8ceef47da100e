"""Times DDP forward/backward steps of one model until both a minimum time and a minimum number of trials are reached."""
import json
import logging
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("bench")


def describe(model):
    sizes = {name: list(p.shape) for name, p in model.named_parameters()}
    norms = {name: float(torch.linalg.matrix_norm(p.detach(), ord=2)) for name, p in model.named_parameters() if p.dim() == 2}
    return {"params": sum(p.numel() for p in model.parameters()), "sizes": sizes, "spectral": norms}


class StepBenchmark:
    def __init__(self, outdir, batch_size, mintime, mintrials, maxtrials):
        self.outdir = outdir
        self.batch_size = batch_size
        self.mintime = mintime
        self.mintrials = mintrials
        self.maxtrials = maxtrials

    def run(self, name, build):
        rank = dist.get_rank()
        torch.manual_seed(0)
        model = DDP(build())
        xs = torch.randn(self.batch_size, 3, 16, 16)
        targets = torch.randint(0, 100, (self.batch_size,))
        if rank == 0:
            with open(os.path.join(self.outdir, f"{name}.json"), "w") as fh:
                json.dump(describe(model.module), fh)

        trial_times = []
        start = time.time()
        for trial in range(self.maxtrials):
            t0 = time.time()
            model.zero_grad()
            loss = F.cross_entropy(model(xs), targets)
            loss.backward()
            finish = time.time()
            trial_times.append(finish - t0)
            if finish - start >= self.mintime and trial + 1 >= self.mintrials:
                break
        dist.barrier()
        return trial_times
