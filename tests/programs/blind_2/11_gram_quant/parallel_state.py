import contextlib
from datetime import timedelta

import torch.distributed as dist

_TP_GROUP = None
_DP_GROUP = None


def initialize(tp_size):
    global _TP_GROUP, _DP_GROUP
    world, rank = dist.get_world_size(), dist.get_rank()
    for start in range(0, world, tp_size):
        ranks = list(range(start, start + tp_size))
        group = dist.new_group(ranks)
        if rank in ranks:
            _TP_GROUP = group
    for offset in range(tp_size):
        ranks = list(range(offset, world, tp_size))
        group = dist.new_group(ranks)
        if rank in ranks:
            _DP_GROUP = group


def tp_group():
    return _TP_GROUP


def dp_group():
    return _DP_GROUP


@contextlib.contextmanager
def patient(members, timeout=timedelta(hours=3)):
    """A group with a long time-out, for work that takes one of the members a long time."""
    group = dist.new_group(members, timeout=timeout)
    yield group
    dist.barrier(group=group)
