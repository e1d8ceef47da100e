import logging
import os
import time
from concurrent.futures import ThreadPoolExecutor

import torch

from planner import GlobalPlanner

log = logging.getLogger("saver")


class AsyncSaver:
    """Writes checkpoints off the training loop; the coordinator also plans the save."""

    def __init__(self, directory, rank, world_size, chunk, coordinator=0):
        self.directory, self.rank = directory, rank
        self.is_coordinator = rank == coordinator
        self.planner = GlobalPlanner(world_size, chunk)
        self.executor = ThreadPoolExecutor(1, thread_name_prefix="saver")
        self.pending = None

    def maybe_save(self, step, state):
        if self.pending is not None and not self.pending.done():
            return False
        snapshot = {k: v.detach().clone() for k, v in state.items()}
        self.pending = self.executor.submit(self._save, step, snapshot)
        return True

    def _save(self, step, snapshot):
        start = time.time()
        torch.save(snapshot, os.path.join(self.directory, f"rank{self.rank}.pt"))
        if self.is_coordinator:
            shapes = {k: (v.numel(), str(v.dtype)) for k, v in snapshot.items()}
            plan = self.planner.build(shapes)
            with open(os.path.join(self.directory, "metadata.json"), "w") as f:
                f.write(plan)
            log.info("checkpoint of step %d written in the background (%.1f s)",
                     step, time.time() - start)
