"""Where the embedding tables live: one owner rank a table, balanced by lookup cost."""
import hashlib
import logging
from dataclasses import dataclass

log = logging.getLogger("planner")


@dataclass(frozen=True)
class TableConfig:
    name: str
    rows: int
    dim: int
    pooling_factor: float
    kernels: tuple = ("dense", "fused")


@dataclass(frozen=True)
class ShardingOption:
    table: TableConfig
    kernel: str

    @property
    def cost(self):
        return self.table.rows * self.table.dim * (0.7 if self.kernel == "fused" else 1.0)


class Enumerator:
    def __init__(self, constraints):
        self.constraints = constraints

    def _filter_names(self, tables):
        wanted = set(self.constraints["tables"])
        return list(wanted & {t.name for t in tables})

    def _filter_kernels(self, table):
        allowed = self.constraints["kernels"]
        return [k for k in allowed if k in table.kernels]

    def enumerate(self, tables):
        by_name = {t.name: t for t in tables}
        options = []
        for name in self._filter_names(tables):
            kernels = self._filter_kernels(by_name[name])
            options.append(min((ShardingOption(by_name[name], k) for k in kernels), key=lambda o: o.cost))
        return options


class GreedyPartitioner:
    def __init__(self, world_size):
        self.world_size = world_size

    def partition(self, options):
        load = [0.0] * self.world_size
        plan = {}
        for option in sorted(options, key=lambda o: -o.cost):
            rank = min(range(self.world_size), key=lambda r: load[r])
            plan[option.table.name] = rank
            load[rank] += option.cost
        return plan


class EmbeddingShardingPlanner:
    def __init__(self, world_size, constraints):
        self.enumerator = Enumerator(constraints)
        self.partitioner = GreedyPartitioner(world_size)

    def plan(self, tables):
        plan = self.partitioner.partition(self.enumerator.enumerate(tables))
        digest = hashlib.md5(",".join(sorted(plan)).encode()).hexdigest()[:8]
        log.info("planned %d tables (config %s)", len(plan), digest)
        return plan
