import hashlib
import os
import time

import torch


class CheckpointManager:
    """Writes a checkpoint, forces it to disk, verifies it and keeps the last few."""

    def __init__(self, folder, keep):
        self.folder = folder
        self.keep = keep
        self.paths = []

    def save(self, step, model, opt):
        t0 = time.time()
        path = os.path.join(self.folder, f"step_{step:06d}.pt")
        with open(path + ".tmp", "wb") as f:
            torch.save({"step": step, "model": model.state_dict(), "opt": opt.state_dict()}, f)
            f.flush()
            os.fsync(f.fileno())
        os.rename(path + ".tmp", path)
        digest = hashlib.sha256(open(path, "rb").read()).hexdigest()
        torch.load(path, weights_only=True)
        self.paths.append(path)
        while len(self.paths) > self.keep:
            os.remove(self.paths.pop(0))
        return digest[:12], time.time() - t0
