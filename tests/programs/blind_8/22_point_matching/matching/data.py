import time

import torch


class PairSource:
    def __init__(self, seed, points, scan_rate=3.0):
        self.gen = torch.Generator().manual_seed(seed)
        self.points = points
        self.period = 1 / scan_rate
        self.due = time.time()

    def next(self):
        self.due = max(self.due + self.period, time.time())
        time.sleep(max(0.0, self.due - time.time()))
        src = torch.randn(self.points, 3, generator=self.gen)
        perm = torch.randperm(self.points, generator=self.gen)
        dst = torch.empty_like(src)
        dst[perm] = src + 0.02 * torch.randn(self.points, 3, generator=self.gen)
        return src, dst, perm
