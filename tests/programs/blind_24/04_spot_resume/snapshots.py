"""Per-rank snapshots on the node's own scratch disk."""
import logging
import os
import re
import time

import torch

log = logging.getLogger("snapshots")
PATTERN = re.compile(r"snapshot_e(\d+)\.pt$")


class SnapshotDir:
    def __init__(self, root, rank, keep=4, mb_per_second=12.0):
        self.path = os.path.join(root, f"node{rank}")
        os.makedirs(self.path, exist_ok=True)
        self.keep, self.rate = keep, mb_per_second

    def _files(self):
        found = {}
        for name in os.listdir(self.path):
            m = PATTERN.match(name)
            if m:
                found[int(m.group(1))] = os.path.join(self.path, name)
        return found

    def save(self, epoch, state):
        final = os.path.join(self.path, f"snapshot_e{epoch}.pt")
        tmp = final + ".part"
        torch.save(state, tmp)
        time.sleep(os.path.getsize(tmp) / 2 ** 20 / self.rate)   # scratch is a throttled volume
        os.replace(tmp, final)
        files = self._files()
        for old in sorted(files)[:-self.keep]:
            os.unlink(files[old])

    def latest(self):
        files = self._files()
        if not files:
            return None
        epoch = max(files)
        return epoch, torch.load(files[epoch])
