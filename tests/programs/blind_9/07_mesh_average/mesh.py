import logging

import torch
import torch.distributed as dist

log = logging.getLogger("mesh")


class Mesh2d:
    """Ranks on a rows x cols grid; every rank is in one row group and one column group."""

    def __init__(self, rows, cols):
        rank = dist.get_rank()
        self.groups = {}
        for r in range(rows):
            members = [r * cols + c for c in range(cols)]
            group = dist.new_group(members)
            if rank in members:
                self.groups["row"] = group
        for c in range(cols):
            members = [r * cols + c for r in range(rows)]
            group = dist.new_group(members)
            if rank in members:
                self.groups["col"] = group


class GossipAverager:
    """Averages the row-shared and the column-shared part of a model along the mesh."""

    def __init__(self, mesh, parts):
        self.mesh = mesh
        self.parts = parts
        self.last = {k: p.detach().clone() for k, p in parts.items()}

    def drift(self, axis):
        return (self.parts[axis].detach() - self.last[axis]).norm().item()

    @torch.no_grad()
    def average(self):
        for axis in sorted(self.parts, key=self.drift, reverse=True):
            p, group = self.parts[axis], self.mesh.groups[axis]
            dist.all_reduce(p.data, group=group)
            p.data /= dist.get_world_size(group)
            self.last[axis] = p.detach().clone()
