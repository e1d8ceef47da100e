import multiprocessing as mp

import torch


class FrameRing:
    """Fixed set of rollout slots in shared memory; only indices travel between processes."""

    def __init__(self, slots, unroll, obs_dim, ctx):
        self.obs = torch.zeros(slots, unroll, obs_dim).share_memory_()
        self.reward = torch.zeros(slots, unroll).share_memory_()
        self.valid = torch.ones(slots, dtype=torch.bool).share_memory_()
        self.free = ctx.SimpleQueue()
        self.full = ctx.SimpleQueue()
        for i in range(slots):
            self.free.put(i)
