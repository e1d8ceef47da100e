"""A small Accelerator: process group, DDP wrapping, sharded loader, gathering of metrics."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


class Accelerator:
    def __init__(self, rank, world_size, port):
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world_size)
        self.object_group = dist.new_group(backend="gloo")
        self.process_index = rank
        self.num_processes = world_size

    @property
    def is_main_process(self):
        return self.process_index == 0

    def prepare_model(self, model):
        return DDP(model)

    def prepare_loader(self, dataset, batch_size, shuffle):
        sampler = DistributedSampler(dataset, self.num_processes, self.process_index, shuffle=shuffle)
        return DataLoader(dataset, batch_size=batch_size, sampler=sampler, drop_last=True)

    def gather_for_metrics(self, tensor):
        parts = [torch.empty_like(tensor) for _ in range(self.num_processes)]
        dist.all_gather(parts, tensor.contiguous(), group=self.object_group)
        return torch.cat(parts)

    def end_training(self):
        dist.barrier()
        dist.destroy_process_group()
