"""Loader whose processes write decoded batches straight into shared memory."""
import multiprocessing as mp

import torch


class RingLoader:
    """`slots` preallocated batches in shared memory, filled by `num_procs` processes."""

    def __init__(self, batch, shape, slots=4, num_procs=2):
        self.slots = [torch.zeros(batch, *shape).share_memory_() for _ in range(slots)]
        self.free, self.ready = mp.Queue(), mp.Queue()
        for i in range(slots):
            self.free.put(i)
        self.procs = [mp.Process(target=self._fill, args=(p,), name=f"loader-{p}", daemon=True)
                      for p in range(num_procs)]
        for p in self.procs:
            p.start()

    def _fill(self, rank):
        g = torch.Generator().manual_seed(rank)
        while True:
            slot = self.free.get()
            buf = self.slots[slot]
            raw = torch.randint(0, 256, buf.shape, dtype=torch.uint8, generator=g)
            buf.copy_(raw)
            buf.div_(255.0).sub_(0.45).div_(0.225)
            self.ready.put(slot)

    def __iter__(self):
        while True:
            slot = self.ready.get()
            yield self.slots[slot]
            self.free.put(slot)

    def close(self):
        for p in self.procs:
            p.terminate()
            p.join()
