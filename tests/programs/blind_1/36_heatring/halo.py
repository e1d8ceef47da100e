import torch
import torch.distributed as dist


class RingExchange:
    """Every rank passes its last row to the next rank and gets one from the previous."""

    def __init__(self):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.next = (self.rank + 1) % self.world
        self.prev = (self.rank - 1) % self.world

    def shift(self, row):
        out = torch.empty_like(row)
        dist.send(row.contiguous(), dst=self.next)
        dist.recv(out, src=self.prev)
        return out
