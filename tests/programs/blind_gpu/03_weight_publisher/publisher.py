import logging
import time

import torch
import torch.distributed as dist

log = logging.getLogger("publisher")


class WeightPublisher:
    """Sends the learner's weights to the replicas that serve evaluation games."""

    def __init__(self, source_rank=0):
        self.source_rank = source_rank
        self.version = 0
        self._groups = {}

    def _group(self, members):
        key = tuple(members)
        if key not in self._groups:
            self._groups[key] = dist.new_group(ranks=list(key))
        return self._groups[key]

    def update(self, module, members):
        members = sorted(set(members) | {self.source_rank})
        if dist.get_rank() not in members:
            return
        started = time.time()
        group = self._group(members)
        flat = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
        dist.broadcast(flat, src=self.source_rank, group=group)
        offset = 0
        for p in module.parameters():
            p.data.copy_(flat[offset : offset + p.numel()].view_as(p))
            offset += p.numel()
        self.version += 1
        log.info("published version %d to %s in %.2fs", self.version, members, time.time() - started)
