"""Process groups of the job: teachers and students."""
import logging
from datetime import timedelta

import torch.distributed as dist

log = logging.getLogger("parallel")


class ParallelState:
    def __init__(self, teacher_ranks, student_ranks):
        rank = dist.get_rank()
        self.is_teacher = rank in teacher_ranks
        self.ranks = teacher_ranks if self.is_teacher else student_ranks
        self.group = None
        if len(self.ranks) > 1:
            log.info("creating group %s", self.ranks)
            self.group = dist.new_group(self.ranks, timeout=timedelta(minutes=20))

    def mean(self, t):
        if self.group is not None:
            dist.all_reduce(t, group=self.group)
            t /= len(self.ranks)
        return t
