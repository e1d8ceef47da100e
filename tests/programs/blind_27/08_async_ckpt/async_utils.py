"""Checkpoint writing in a forked process while training goes on."""
import logging
import multiprocessing as mp
import os
import pickle
import time
from collections import deque

import torch
import torch.distributed as dist

logger = logging.getLogger("async_ckpt")


def write_checkpoint(path, arrays, throughput):
    with open(path + ".tmp", "wb") as f:
        for name, array in arrays:
            f.write(pickle.dumps((name, array), protocol=5))
            f.flush()
            os.fsync(f.fileno())
            time.sleep(array.nbytes / throughput)
    os.replace(path + ".tmp", path)
    os._exit(0)


class TemporalAsyncCaller:
    """Forks one writer per save; the writer ends when its file is complete."""

    def __init__(self):
        self.process, self.staged, self.started = None, None, None

    def schedule(self, path, state, throughput):
        self.staged = [(name, tensor.detach().cpu().clone().numpy()) for name, tensor in state.items()]
        self.started = time.time()
        self.process = mp.get_context("fork").Process(target=write_checkpoint, args=(path, self.staged, throughput),
                                                      name=f"ckpt_writer_{os.path.basename(path)}")
        self.process.start()

    def is_done(self, blocking=False):
        local = 1 if self.process is not None and self.process.is_alive() else 0
        alive = torch.tensor([local])
        dist.all_reduce(alive)
        if alive.item() and not blocking:
            return False
        if self.process is not None:
            self.process.join()
            if self.process.exitcode != 0:
                raise RuntimeError(f"checkpoint writer ended with {self.process.exitcode}")
            logger.info("%s joined after %.1f s", self.process.name, time.time() - self.started)
            self.process, self.staged = None, None
        dist.barrier()
        return True


class AsyncCallsQueue:
    def __init__(self, save_dir, rank, keep, throughput):
        self.save_dir, self.rank, self.throughput = save_dir, rank, throughput
        self.caller, self.pending = TemporalAsyncCaller(), None
        self.saved = deque()
        self.keep = keep

    def schedule(self, iteration, state):
        if self.pending is not None:
            self.maybe_finalize(blocking=True)
        path = os.path.join(self.save_dir, f"iter_{iteration:07d}_rank{self.rank}.distcp")
        self.caller.schedule(path, state, self.throughput)
        self.pending = path

    def maybe_finalize(self, blocking=False):
        if self.pending is None or not self.caller.is_done(blocking):
            return
        self.saved.append(self.pending)
        self.pending = None
        while len(self.saved) > self.keep:
            os.unlink(self.saved.popleft())
