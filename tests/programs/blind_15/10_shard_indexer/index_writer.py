import logging
import os

import numpy as np
import torch

log = logging.getLogger("writer")


def kmeans(x, k=96, iters=30):
    centers = x[torch.randperm(len(x))[:k]].clone()
    for _ in range(iters):
        assign = torch.cdist(x, centers).argmin(1)
        sums = torch.zeros_like(centers).index_add_(0, assign, x)
        counts = torch.bincount(assign, minlength=k).clamp(min=1)
        centers = sums / counts[:, None]
    return centers, assign


def index_writer(q, out, segment, dim):
    torch.set_num_threads(1)
    buffer, buffered, segments = [], 0, 0
    while True:
        item = q.get()
        if item is None:
            break
        _, vectors = item
        buffer.append(vectors.clone())
        buffered += len(vectors)
        if buffered >= segment:
            x = torch.cat(buffer)
            centers, assign = kmeans(x)
            np.savez(os.path.join(out, "segment_%04d.npz" % segments), vectors=x.numpy(),
                     centers=centers.numpy(), assign=assign.numpy())
            segments += 1
            log.info("segment %d: %d vectors", segments, len(x))
            buffer, buffered = [], 0
    log.info("finished, %d vectors left over", buffered)
