import logging
import os
import time

import torch
import torch.distributed as dist

log = logging.getLogger("checkpoint")


class Checkpointer:
    """Keeps the last few checkpoints, one every `period` seconds of wall time."""

    def __init__(self, directory, period, keep=2):
        self.directory, self.period, self.keep = directory, period, keep
        self.group = dist.new_group(backend="gloo")
        self.history = []
        self.last_saved = None

    def arm(self):
        self.last_saved = time.monotonic()

    def due(self):
        return time.monotonic() - self.last_saved >= self.period

    def maybe_save(self, step, model, optimizer, sampler_state):
        if not self.due():
            return False
        self.save(step, model, optimizer, sampler_state)
        self.last_saved = time.monotonic()
        return True

    def save(self, step, model, optimizer, sampler_state):
        rank = dist.get_rank()
        log.info("saving checkpoint at step %d", step)
        gathered = [None] * dist.get_world_size() if rank == 0 else None
        dist.gather_object(sampler_state, gathered, dst=0, group=self.group)
        if rank == 0:
            path = os.path.join(self.directory, f"step{step:07d}.pt")
            torch.save({"step": step, "model": model.state_dict(),
                        "optimizer": optimizer.state_dict(), "samplers": gathered}, path + ".tmp")
            os.replace(path + ".tmp", path)
            self.history.append(path)
            while len(self.history) > self.keep:
                os.remove(self.history.pop(0))
        dist.barrier(group=self.group)
