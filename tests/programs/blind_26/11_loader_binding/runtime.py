"""Process level settings of a training run: threads, core placement, seeds."""
import logging
import os
import random

import numpy as np
import torch

log = logging.getLogger("runtime")


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


class CorePlan:
    """Chooses the core of a local rank so that ranks on one host do not migrate."""

    def __init__(self, local_rank=0, reserve=0):
        self.available = sorted(os.sched_getaffinity(0))
        usable = self.available[reserve:] or self.available
        self.core = usable[local_rank % len(usable)]

    def apply(self):
        os.sched_setaffinity(0, {self.core})
        log.info("local rank placed on core %d (of %d)", self.core, len(self.available))


def setup(args):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(name)s: %(message)s")
    seed_everything(args.seed)
    torch.set_num_threads(args.threads)
    plan = CorePlan(args.local_rank)
    if args.pin:
        plan.apply()
    return plan
