"""The stream of tasks: each brings some new classes, with a share of rehearsal of the old ones."""
import torch


class TaskStream:
    def __init__(self, features: int, per_task: int, tasks: int, seed: int, rank: int, rehearsal: float = 0.5):
        shared = torch.Generator().manual_seed(seed)
        self.centres = torch.randn(per_task * tasks, features, generator=shared)
        self.gen = torch.Generator().manual_seed(seed + 1000 * (rank + 1))
        self.per_task = per_task
        self.rehearsal = rehearsal

    def batch(self, task: int, size: int, noise: float = 1.6):
        first = task * self.per_task
        new = torch.randint(first, first + self.per_task, (size,), generator=self.gen)
        if first:
            old = torch.randint(0, first, (size,), generator=self.gen)
            keep = torch.rand(size, generator=self.gen) < self.rehearsal
            new = torch.where(keep, old, new)
        x = self.centres[new] + noise * torch.randn(size, self.centres.shape[1], generator=self.gen)
        return x, new

    def test_set(self, task: int, size: int, noise: float = 1.6):
        gen = torch.Generator().manual_seed(4321 + task)
        y = torch.randint(0, (task + 1) * self.per_task, (size,), generator=gen)
        return self.centres[y] + noise * torch.randn(size, self.centres.shape[1], generator=gen), y
