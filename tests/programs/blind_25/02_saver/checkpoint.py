"""Sharded checkpoints, written in the background while training goes on."""
import hashlib
import logging
import os
import shutil
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist

log = logging.getLogger("checkpoint")


class ShardedWriter:
    """Plans a save over all ranks and writes the part of this rank."""

    def __init__(self, group=None):
        self.group = group
        self.rank = dist.get_rank(group)
        self.world = dist.get_world_size(group)

    def local_plan(self, state):
        plan = []
        for i, (name, tensor) in enumerate(state.items()):
            if i % self.world == self.rank:
                digest = hashlib.sha256(tensor.numpy().tobytes()).hexdigest()
                plan.append({"name": name, "numel": tensor.numel(), "sha256": digest})
        return plan

    def save(self, state, path):
        plan = self.local_plan(state)
        plans = [None] * self.world
        dist.all_gather_object(plans, plan, group=self.group)
        mine = {item["name"]: state[item["name"]] for item in plans[self.rank]}
        torch.save(mine, os.path.join(path, f"shard-{self.rank}.pt"))
        sizes = [None] * self.world
        dist.all_gather_object(sizes, sum(i["numel"] for i in plan), group=self.group)
        if self.rank == 0:
            torch.save({"plans": plans, "sizes": sizes}, os.path.join(path, "metadata.pt"))
        return path


class CheckpointManager:
    def __init__(self, directory, keep=2, mode="async"):
        self.directory, self.keep, self.mode = directory, keep, mode
        self.rank = dist.get_rank()
        self.writer = ShardedWriter()
        self.executor = ThreadPoolExecutor(1, thread_name_prefix="AsyncCheckpointExecutor")
        self.pending = None
        self.saved = []

    def save(self, step, state):
        self.wait()
        path = os.path.join(self.directory, f"step-{step:06d}")
        os.makedirs(path, exist_ok=True)
        snapshot = {k: v.detach().clone() for k, v in state.items()}
        if self.mode == "async":
            self.pending = self.executor.submit(self.writer.save, snapshot, path)
        else:
            self.writer.save(snapshot, path)
        self.saved.append(path)
        self._prune()
        dist.barrier()
        log.info("checkpoint for step %d dispatched", step)

    def _prune(self):
        while len(self.saved) > self.keep:
            old = self.saved.pop(0)
            if self.rank == 0:
                shutil.rmtree(old, ignore_errors=True)

    def wait(self):
        if self.pending is not None:
            log.info("previous checkpoint complete: %s", os.path.basename(self.pending.result()))
            self.pending = None
