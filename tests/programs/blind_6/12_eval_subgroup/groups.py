import datetime
from dataclasses import dataclass, field

import torch
import torch.distributed as dist


@dataclass
class Topology:
    world_size: int
    eval_ranks: list = field(default_factory=lambda: [0, 1])

    def is_evaluator(self, rank):
        return rank in self.eval_ranks


class EvalGroup:
    """Averages validation metrics over the ranks that hold validation data."""

    def __init__(self, topology):
        self.size = len(topology.eval_ranks)
        self.group = dist.new_group(topology.eval_ranks)

    def mean(self, value):
        t = torch.tensor(float(value))
        dist.all_reduce(t, group=self.group)
        return (t / self.size).item()


class CheckpointGroup:
    """All ranks, with a timeout that allows for a big checkpoint."""

    def __init__(self, minutes=60):
        self.group = dist.new_group(timeout=datetime.timedelta(minutes=minutes))

    def wait(self):
        dist.barrier(group=self.group)
