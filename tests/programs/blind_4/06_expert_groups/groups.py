import logging

import torch.distributed as dist

log = logging.getLogger("groups")


class ExpertLayout:
    """Two ranks share the experts, the remaining rank keeps the router and the data."""

    def __init__(self, world_size, expert_ranks):
        self.world_size = world_size
        self.expert_ranks = sorted(expert_ranks)
        self.group = None
        self.eval_group = None

    def is_expert(self, rank):
        return rank in self.expert_ranks

    def setup(self, rank):
        if self.is_expert(rank):
            log.info("creating expert group %s", self.expert_ranks)
            self.group = dist.new_group(self.expert_ranks)
        log.info("creating the evaluation group")
        self.eval_group = dist.new_group(list(range(self.world_size)))
        dist.barrier(group=self.eval_group)
        log.info("layout ready")
        return self.group
