import contextlib
import fcntl
import json
import time
from pathlib import Path

import torch


class ArtifactStore:
    def __init__(self, root):
        self.root = Path(root)
        self.manifest = self.root / "manifest.json"

    @contextlib.contextmanager
    def exclusive(self):
        with open(self.root / "store.lock", "a") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(f, fcntl.LOCK_UN)

    def publish(self, name, tensors, throttle):
        with self.exclusive():
            for key, tensor in tensors.items():
                torch.save(tensor, self.root / f"{name}_{key}.pt")
                time.sleep(throttle)
            entries = json.loads(self.manifest.read_text()) if self.manifest.exists() else {}
            entries[name] = sorted(tensors)
            self.manifest.write_text(json.dumps(entries))
        return len(entries)
