import torch.distributed as dist


class Topology:
    """Ranks are laid out node by node; the first rank of every node is its leader."""

    def __init__(self, per_node: int):
        self.rank = dist.get_rank()
        self.world = dist.get_world_size()
        self.per_node = per_node
        self.nodes = [list(range(s, s + per_node)) for s in range(0, self.world, per_node)]
        self.leaders = [n[0] for n in self.nodes]
        self.node_group = None
        self.leader_group = None
        self.report_group = None
        self._build()

    @property
    def is_leader(self):
        return self.rank in self.leaders

    @property
    def node_leader(self):
        return self.leaders[self.rank // self.per_node]

    def _build(self):
        for ranks in self.nodes:
            group = dist.new_group(ranks)
            if self.rank in ranks:
                self.node_group = group
        if self.is_leader:
            self.leader_group = dist.new_group(self.leaders)
        self.report_group = dist.new_group(list(range(self.world)))
