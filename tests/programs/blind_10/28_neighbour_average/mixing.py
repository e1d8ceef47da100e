import logging

import torch
import torch.distributed as dist

log = logging.getLogger("mixing")


class RingMixer:
    """Decentralised averaging: every rank mixes its weights with those of its left neighbour."""

    def __init__(self, model, weight=0.5):
        self.params = list(model.parameters())
        self.weight = weight
        rank, world = dist.get_rank(), dist.get_world_size()
        self.right = (rank + 1) % world
        self.left = (rank - 1) % world

    def _flatten(self):
        return torch.cat([p.detach().flatten() for p in self.params])

    def _assign(self, flat):
        offset = 0
        for p in self.params:
            p.data.copy_(flat[offset:offset + p.numel()].view_as(p))
            offset += p.numel()

    def mix(self):
        mine = self._flatten()
        theirs = torch.empty_like(mine)
        dist.send(mine, dst=self.right)
        dist.recv(theirs, src=self.left)
        self._assign((1 - self.weight) * mine + self.weight * theirs)
