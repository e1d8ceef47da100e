import hashlib
import logging
import time

import torch

log = logging.getLogger("reader")


def read_shard(shard, q, n_batches, batch, dim):
    torch.set_num_threads(1)
    gen = torch.Generator().manual_seed(shard)
    digest = hashlib.sha1()
    for _ in range(n_batches):
        x = torch.randn(batch, dim, generator=gen)
        digest.update(x.numpy().tobytes())
        time.sleep(0.02)
        q.put((shard, x))
    time.sleep(0.4)
    log.info("shard %d sha1 %s", shard, digest.hexdigest()[:10])
