import io
import json
import logging
import os
import time

import torch

log = logging.getLogger("checkpoint")


class ShardedUploader:
    """Writes a checkpoint in parts, at the rate the storage accepts."""

    def __init__(self, folder, part_mb=4, rate_mb=7.5):
        self.folder, self.part, self.rate = folder, part_mb * 2**20, rate_mb * 2**20
        os.makedirs(folder, exist_ok=True)

    def save(self, state, step):
        started = time.time()
        buffer = io.BytesIO()
        torch.save(state, buffer)
        data, parts = buffer.getbuffer(), []
        for number, offset in enumerate(range(0, len(data), self.part)):
            part = data[offset : offset + self.part]
            name = f"part-{number:03d}.bin"
            with open(os.path.join(self.folder, name), "wb") as f:
                f.write(part)
                f.flush()
                os.fsync(f.fileno())
            parts.append(name)
            time.sleep(len(part) / self.rate)
        with open(os.path.join(self.folder, "manifest.json"), "w") as f:
            json.dump({"step": step, "parts": parts}, f)
        log.info("saved step %d: %d MB in %.1fs", step, len(data) >> 20, time.time() - started)
