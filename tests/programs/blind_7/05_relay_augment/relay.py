"""A few augmentation processes, each behind its own pipe."""
import logging
import multiprocessing as mp
import os

import numpy as np
import torch

log = logging.getLogger(__name__)


def augment(images, seed):
    """Random crop and resize back, flip, colour jitter and blur; float32 NCHW."""
    g = torch.Generator().manual_seed(seed)
    x = torch.from_numpy(images)
    side = x.shape[-1]
    m = int(torch.randint(0, side // 8 + 1, (1,), generator=g))
    x = torch.nn.functional.interpolate(
        x[..., m : side - m or None, m : side - m or None], size=(side, side), mode="bilinear"
    )
    if torch.rand(1, generator=g) < 0.5:
        x = x.flip(-1)
    x = x * (1 + 0.2 * torch.randn(1, 3, 1, 1, generator=g))
    x = torch.nn.functional.avg_pool2d(x, 3, stride=1, padding=1)
    return x.numpy()


def _serve(conn, name):
    torch.set_num_threads(1)
    logging.getLogger(name).debug("pid %d ready", os.getpid())
    while True:
        job = conn.recv()
        if job is None:
            return
        key, images, labels = job
        conn.send((key, augment(images, key), labels))


class AugmentRelay:
    """Keeps `depth` jobs at each process so that none of them has to wait for work."""

    def __init__(self, processes=2, depth=2):
        self.depth = depth
        self.conns, self.procs = [], []
        for i in range(processes):
            ours, theirs = mp.Pipe()
            proc = mp.Process(target=_serve, args=(theirs, f"augment-{i}"), name=f"augment-{i}", daemon=True)
            proc.start()
            theirs.close()
            self.conns.append(ours)
            self.procs.append(proc)

    def map(self, batches):
        """Yields augmented (images, labels) in the order of the batches."""
        pending = []
        n = len(self.conns)
        for key, (images, labels) in enumerate(batches):
            if len(pending) == n * self.depth:
                yield self._take(pending.pop(0))
            conn = self.conns[key % n]
            conn.send((key, np.ascontiguousarray(images), labels))
            pending.append(conn)
        while pending:
            yield self._take(pending.pop(0))

    def _take(self, conn):
        _, images, labels = conn.recv()
        return torch.from_numpy(images), torch.from_numpy(labels)

    def close(self):
        for conn in self.conns:
            conn.send(None)
        for proc in self.procs:
            proc.join()
