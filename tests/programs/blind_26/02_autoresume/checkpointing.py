"""Sharded checkpoints: one file per rank and batch, in a folder per batch."""
import glob
import logging
import os
import re

import torch

log = logging.getLogger("checkpoint")
PATTERN = re.compile(r"ba(\d+)-rank(\d+)\.pt$")


class CheckpointSaver:
    def __init__(self, folder, rank, interval, num_to_keep=3):
        self.folder = folder
        self.rank = rank
        self.interval = interval
        self.num_to_keep = num_to_keep
        os.makedirs(folder, exist_ok=True)

    def name(self, batch):
        return os.path.join(self.folder, f"ba{batch}-rank{self.rank}.pt")

    def maybe_save(self, state):
        if state.timestamp.batch % self.interval == 0:
            self.save(state)

    def save(self, state):
        target = self.name(state.timestamp.batch)
        torch.save(state.state_dict(), target + ".tmp")
        os.replace(target + ".tmp", target)
        for old in saved_batches(self.folder, self.rank)[:-self.num_to_keep]:
            os.remove(self.name(old))


def saved_batches(folder, rank):
    found = []
    for path in glob.glob(os.path.join(folder, f"ba*-rank{rank}.pt")):
        found.append(int(PATTERN.search(path).group(1)))
    return sorted(found)


def autoresume(folder, rank, state):
    """Continue from the latest checkpoint in the save folder, if there is one."""
    batches = saved_batches(folder, rank)
    if not batches:
        return False
    path = os.path.join(folder, f"ba{batches[-1]}-rank{rank}.pt")
    state.load_state_dict(torch.load(path, weights_only=True))
    log.info("rank %d: resumed from %s", rank, os.path.basename(path))
    return True
