import json
import logging
import os
import time
from pathlib import Path

import numpy as np

log = logging.getLogger("spool")


class Spool:
    """Directory of jobs; a job is claimed by renaming it."""

    def __init__(self, root):
        self.root = Path(root)

    def submit(self, number, payload):
        partial = self.root / f".{number:05d}"
        partial.write_text(json.dumps(payload))
        os.replace(partial, self.root / f"{number:05d}.job")

    def claim(self):
        for path in sorted(self.root.glob("*.job")):
            taken = path.with_suffix(f".{os.getpid()}")
            try:
                os.rename(path, taken)
            except FileNotFoundError:
                continue
            payload = json.loads(taken.read_text())
            taken.unlink()
            return payload
        return None

    def wait(self, timeout):
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            payload = self.claim()
            if payload is not None:
                return payload
            time.sleep(0.1)
        raise TimeoutError(f"no job within {timeout:.0f}s")


def feeder_main(root, jobs, gap):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    spool, rng = Spool(root), np.random.default_rng(1)
    for number in range(jobs):
        time.sleep(gap)
        spool.submit(number, {"number": number, "features": rng.random(16).round(3).tolist()})
        log.info("job %d submitted", number)
