import glob
import os
import re
import time

import numpy as np


def save(model_dir, step, **arrays):
    path = os.path.join(model_dir, f"model-{step}.npz")
    tmp = path + ".tmp.npz"
    np.savez(tmp, step=step, **arrays)
    os.replace(tmp, path)
    return path


def latest(model_dir):
    found = [(int(re.search(r"model-(\d+)\.npz$", p).group(1)), p)
             for p in glob.glob(os.path.join(model_dir, "model-*.npz")) if not p.endswith(".tmp.npz")]
    return max(found)[1] if found else None


def checkpoints_iterator(model_dir, poll=2.0):
    """Yields every new checkpoint; waits until there is one."""
    last = None
    while True:
        path = latest(model_dir)
        if path is None or path == last:
            time.sleep(poll)
            continue
        last = path
        yield path
