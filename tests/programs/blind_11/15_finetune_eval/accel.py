"""The part of the launcher library that the script uses."""
import os

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


class Accelerator:
    def __init__(self, rank, world_size, port):
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world_size))
        dist.init_process_group("gloo")
        self.rank = rank
        self.world_size = world_size

    @property
    def is_main_process(self):
        return self.rank == 0

    def prepare(self, model, loader):
        sampler = DistributedSampler(loader.dataset, self.world_size, self.rank)
        return DistributedDataParallel(model), DataLoader(loader.dataset, batch_size=loader.batch_size, sampler=sampler)

    def backward(self, loss):
        loss.backward()

    def wait_for_everyone(self):
        dist.barrier()

    def end(self):
        dist.destroy_process_group()
