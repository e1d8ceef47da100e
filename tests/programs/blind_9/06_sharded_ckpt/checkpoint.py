import logging
import os

import torch
import torch.distributed as dist

log = logging.getLogger("ckpt")


class ShardedCheckpointer:
    """Every rank owns a slice of the optimizer state; the file holds all of them."""

    def __init__(self, directory, world_size, rank):
        self.directory = directory
        self.world_size = world_size
        self.rank = rank
        self.best = float("inf")

    def consolidate(self, shard):
        pieces = [torch.empty_like(shard) for _ in range(self.world_size)]
        dist.all_gather(pieces, shard)
        return torch.cat(pieces)

    def after_validation(self, epoch, val_loss, model, momentum_shard):
        if val_loss < self.best:
            self.best = val_loss
            state = {"epoch": epoch, "model": model.state_dict(), "momentum": self.consolidate(momentum_shard)}
            if self.rank == 0:
                torch.save(state, os.path.join(self.directory, "best.pt"))
                log.info("epoch %d: saved best.pt (val %.5f)", epoch, val_loss)
