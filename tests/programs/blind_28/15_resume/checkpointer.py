"""Checkpoints of a training run."""
import os

import torch
import torch.distributed as dist


class Checkpointer:
    def __init__(self, folder: str):
        self.path = os.path.join(folder, "checkpoint.pt")

    def exists(self) -> bool:
        return os.path.exists(self.path)

    def save(self, model, optimizer, scheduler, step: int):
        if dist.is_initialized() and dist.get_rank() != 0:
            return
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict(), "step": step}
        torch.save(state, self.path + ".tmp")
        os.replace(self.path + ".tmp", self.path)

    def load(self, model, optimizer, scheduler) -> int:
        step = torch.zeros(1, dtype=torch.long)
        if dist.get_rank() == 0:
            state = torch.load(self.path, weights_only=False)
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            scheduler.load_state_dict(state["scheduler"])
            step.fill_(state["step"])
        dist.broadcast(step, 0)
        return int(step)
