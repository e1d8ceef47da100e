import gzip
import io
import os

import torch


class CheckpointWriter:
    """Writes compressed checkpoints and keeps the newest ones."""

    def __init__(self, folder, keep):
        self.folder = folder
        self.keep = keep
        self.written = []

    def save(self, step, model, optimizer):
        buffer = io.BytesIO()
        torch.save({"step": step, "model": model, "optimizer": optimizer}, buffer)
        path = os.path.join(self.folder, f"checkpoint_{step:07d}.pt.gz")
        with open(path + ".tmp", "wb") as raw:
            with gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=9) as f:
                f.write(buffer.getbuffer())
            raw.flush()
            os.fsync(raw.fileno())
        os.replace(path + ".tmp", path)
        self.written.append(path)
        while len(self.written) > self.keep:
            os.remove(self.written.pop(0))
