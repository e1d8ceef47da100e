import logging
import os
import time

import torch
import torch.distributed as dist

log = logging.getLogger("ckpt")


class RemoteStore:
    """Uploads in parts; the bucket takes a few MB per second from this node."""

    def __init__(self, root, rate=4 << 20):
        self.root, self.rate = root, rate
        os.makedirs(root, exist_ok=True)

    def put(self, name, path, part=1 << 20):
        sent = 0
        with open(path, "rb") as src, open(os.path.join(self.root, name), "wb") as dst:
            while chunk := src.read(part):
                dst.write(chunk)
                sent += len(chunk)
                time.sleep(len(chunk) / self.rate)
        return sent


def save_and_upload(model, opt, step, store):
    if dist.get_rank() == 0:
        path = os.path.join(store.root, "local.pt")
        torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "step": step}, path)
        t0 = time.monotonic()
        n = store.put(f"step{step}.pt", path)
        log.info("uploaded %.0f MB in %.1fs", n / 2**20, time.monotonic() - t0)
    dist.barrier()
