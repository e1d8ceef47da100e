"""Checkpoints in the background: the trainer stages tensors in shared host memory, a writer puts them on disk."""
import json
import logging
import os
import shutil
import time

import torch

log = logging.getLogger("writer")


class StagedCheckpointer:
    def __init__(self, ctx, directory, args):
        self.jobs, self.free = ctx.Queue(), ctx.Queue()
        self.slots = [None] * args.staging_slots
        for slot in range(args.staging_slots):
            self.free.put(slot)
        self.writer = ctx.Process(target=writer_process, args=(directory, args, self.jobs, self.free),
                                  name="writer", daemon=True)
        self.writer.start()

    @staticmethod
    def _named_tensors(model, optimizer):
        for name, p in model.named_parameters():
            yield f"model.{name}", p.detach()
            for key, value in optimizer.state.get(p, {}).items():
                if torch.is_tensor(value) and value.dim():
                    yield f"optim.{name}.{key}", value

    @torch.no_grad()
    def save(self, step, model, optimizer):
        """Returns when the tensors are staged; writing goes on in the writer."""
        slot = self.free.get()
        began = time.monotonic()
        tensors = dict(self._named_tensors(model, optimizer))
        fresh = self.slots[slot] is None
        if fresh:
            self.slots[slot] = {k: torch.empty(v.shape, dtype=v.dtype).share_memory_() for k, v in tensors.items()}
        for key, value in tensors.items():
            self.slots[slot][key].copy_(value, non_blocking=True)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.jobs.put((step, slot, self.slots[slot] if fresh else None))
        return time.monotonic() - began


def write_paced(handle, data, budget):
    """Keeps below the write budget (bytes per second) of the shared volume."""
    chunk = 2 << 20
    for offset in range(0, len(data), chunk):
        began = time.monotonic()
        piece = data[offset:offset + chunk]
        handle.write(piece)
        time.sleep(max(0.0, len(piece) / budget - (time.monotonic() - began)))


def writer_process(directory, args, jobs, free):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s [writer] %(message)s")
    torch.set_num_threads(1)
    staged, kept = {}, []
    while True:
        step, slot, tensors = jobs.get()
        if tensors is not None:
            staged[slot] = tensors
        began = time.monotonic()
        target = os.path.join(directory, f"step_{step:07d}")
        partial = target + ".partial"
        os.makedirs(partial, exist_ok=True)
        index, size = {}, 0
        with open(os.path.join(partial, "tensors.bin"), "wb") as handle:
            for key, value in staged[slot].items():
                data = memoryview(value.numpy().reshape(-1)).cast("B")
                index[key] = [size, list(value.shape)]
                write_paced(handle, data, args.write_mb * 1e6)
                size += len(data)
            handle.flush()
            os.fsync(handle.fileno())
        free.put(slot)
        with open(os.path.join(partial, "index.json"), "w") as handle:
            json.dump(index, handle)
        os.rename(partial, target)
        kept.append(target)
        while len(kept) > args.keep:
            shutil.rmtree(kept.pop(0), ignore_errors=True)
        log.info("step %d written, %.0f MB in %.1f s", step, size / 1e6, time.monotonic() - began)
