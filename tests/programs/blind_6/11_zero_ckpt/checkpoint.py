import logging
import os

import torch
import torch.distributed as dist

log = logging.getLogger("ckpt")


class Checkpointer:
    """Keeps the last few checkpoints; only the main rank writes."""

    def __init__(self, directory, keep=2):
        self.directory, self.keep, self.saved = directory, keep, []

    def save(self, step, model, optimizer):
        if dist.get_rank() == 0:
            optimizer.consolidate_state_dict(to=0)
            state = {
                "step": step,
                "model": model.module.state_dict(),
                "optimizer": optimizer.state_dict(),
            }
            path = os.path.join(self.directory, f"step{step:06d}.pt")
            torch.save(state, path)
            self.saved.append(path)
            for old in self.saved[: -self.keep]:
                os.remove(old)
            del self.saved[: -self.keep]
            log.info("saved %s", path)
        dist.barrier()
