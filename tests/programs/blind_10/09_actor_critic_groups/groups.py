import logging
from dataclasses import dataclass

import torch.distributed as dist

log = logging.getLogger("acgroups")


@dataclass
class Placement:
    role: str
    ranks: tuple
    group: object
    envs: int


class Topology:
    """Splits the world into actor ranks, which average their weights, and critic ranks."""

    def __init__(self, world, actors, envs):
        self.roles = {"actor": tuple(range(actors)), "critic": tuple(range(actors, world))}
        self.envs = envs

    def place(self, rank):
        placement = None
        for role, ranks in self.roles.items():
            group = dist.new_group(list(ranks))
            if rank in ranks:
                placement = Placement(role, ranks, group, self.envs[rank % len(self.envs)])
        log.info("rank %d is %s with %d environments", rank, placement.role, placement.envs)
        return placement
