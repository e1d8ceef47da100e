import json
import logging
import os
import time
from pathlib import Path

import numpy as np

log = logging.getLogger("index")


class BuildTicket:
    """One process builds, the others wait until it is finished."""

    def __init__(self, path, poll=0.1):
        self.path, self.poll = path, poll
        self.fd = None

    def try_acquire(self):
        try:
            self.fd = os.open(self.path, os.O_CREAT | os.O_EXCL)
            return True
        except FileExistsError:
            return False

    def wait(self):
        while os.path.exists(self.path):
            time.sleep(self.poll)

    def release(self):
        os.close(self.fd)
        os.remove(self.path)


class CorpusIndex:
    def __init__(self, root):
        self.root = Path(root)
        self.file = self.root / "offsets.npy"

    def _build(self):
        offsets = []
        for shard in sorted(self.root.glob("shard_*.jsonl")):
            pos = 0
            with open(shard, "rb") as f:
                for line in f:
                    offsets.append((int(shard.stem[-2:]), pos, len(json.loads(line)["text"])))
                    pos += len(line)
            log.info("indexed %s", shard.name)
            time.sleep(0.3)
        np.save(self.file, np.array(offsets, dtype=np.int64))

    def ensure(self):
        if self.file.exists():
            return np.load(self.file)
        ticket = BuildTicket(str(self.root / "index.lock"))
        if ticket.try_acquire():
            self._build()
            ticket.release()
        else:
            ticket.wait()
        return np.load(self.file)
