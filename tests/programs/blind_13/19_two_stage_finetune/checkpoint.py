"""Checkpoint directory: step_N/train_state.pt, metadata.json and a link called latest."""
import json
import logging
import os
from pathlib import Path

import torch
import torch.distributed as dist

log = logging.getLogger("checkpoint")


class CheckpointManager:
    def __init__(self, run_dir):
        self.run_dir = Path(run_dir)
        self.latest = self.run_dir / "latest"

    def save(self, step, net, opt):
        if dist.get_rank() != 0:
            return
        target = self.run_dir / f"step_{step:06d}"
        target.mkdir(parents=True, exist_ok=True)
        with open(target / "train_state.pt", "wb") as f:
            torch.save({"step": step, "net": net.state_dict(), "opt": opt.state_dict()}, f)
            f.flush()
            os.fsync(f.fileno())
        (target / "metadata.json").write_text(json.dumps({"step": step, "world_size": dist.get_world_size()}))
        link = self.run_dir / "latest.new"
        link.symlink_to(target.name)
        link.rename(self.latest)
        log.info("saved %s", target)

    def load(self, net):
        if not (self.latest / "train_state.pt").exists():
            log.info("no checkpoint in %s", self.run_dir)
            return 0
        state = [None]
        if dist.get_rank() == 0:
            state = [torch.load(self.latest / "train_state.pt")]
        dist.broadcast_object_list(state, src=0)
        net.load_state_dict(state[0]["net"])
        return state[0]["step"]
