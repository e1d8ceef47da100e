"""Checkpoints of model and optimizer."""
import logging
import time
from pathlib import Path

import torch

log = logging.getLogger("checkpoint")


class Checkpointer:
    def __init__(self, folder: Path, keep=2):
        self.folder = folder
        self.keep = keep
        self.saved = []

    def save(self, step, model, optimizer):
        """Writes the full optimizer state, not only the shard of this rank."""
        t0 = time.time()
        self.folder.mkdir(parents=True, exist_ok=True)
        optimizer.consolidate_state_dict(to=0)
        path = self.folder / f"step{step:06d}.pt"
        torch.save({"step": step, "model": model.state_dict(), "optim": optimizer.state_dict()}, path)
        self.saved.append(path)
        while len(self.saved) > self.keep:
            self.saved.pop(0).unlink(missing_ok=True)
        log.info("saved %s in %.1f s", path.name, time.time() - t0)
