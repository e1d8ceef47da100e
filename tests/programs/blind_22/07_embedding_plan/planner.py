"""Assigns embedding tables to ranks."""
import dataclasses
import logging

log = logging.getLogger("planner")

KERNELS = ["fused", "dense", "quantized", "offloaded"]
COST = {"fused": 1.0, "dense": 1.0, "quantized": 1.0, "offloaded": 4.0}


@dataclasses.dataclass(frozen=True)
class TableConfig:
    name: str
    rows: int
    dim: int
    features: tuple


@dataclasses.dataclass(frozen=True)
class Placement:
    table: str
    owner: int
    kernel: str


def enabled_tables(configs, active_features):
    """Tables that serve at least one feature of this run."""
    wanted = {f for f in active_features}
    by_feature = {f: c for c in configs for f in c.features}
    return list({by_feature[f].name for f in wanted if f in by_feature})


def compute_kernels(allowed):
    return list(set(KERNELS) & set(allowed))


class GreedyPlanner:
    """Longest-processing-time placement; equal tables go in the order they come."""

    def __init__(self, world_size, allowed_kernels):
        self.world_size = world_size
        self.allowed = allowed_kernels

    def plan(self, configs, active_features):
        sizes = {c.name: c.rows * c.dim for c in configs}
        load = [0.0] * self.world_size
        placements = {}
        for name in sorted(enabled_tables(configs, active_features), key=lambda n: -sizes[n]):
            kernel = min(compute_kernels(self.allowed), key=COST.__getitem__)
            owner = load.index(min(load))
            load[owner] += sizes[name] * COST[kernel]
            placements[name] = Placement(name, owner, kernel)
        return placements
