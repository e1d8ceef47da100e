"""Small wrapper over torch.distributed in the style of the horovod backend."""
import os
import socket
from datetime import timedelta

import torch
import torch.distributed as dist


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Backend:
    def __init__(self, rank, world_size, port):
        os.environ["MASTER_ADDR"] = "127.0.0.1"
        os.environ["MASTER_PORT"] = str(port)
        dist.init_process_group("gloo", rank=rank, world_size=world_size,
                                timeout=timedelta(minutes=5))
        self.rank = rank
        self.world_size = world_size

    @property
    def is_root(self):
        return self.rank == 0

    def broadcast_parameters(self, model):
        for p in model.state_dict().values():
            dist.broadcast(p, src=0)

    def average_gradients(self, model):
        flat = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
        dist.all_reduce(flat)
        flat /= self.world_size
        offset = 0
        for p in model.parameters():
            n = p.grad.numel()
            p.grad.copy_(flat[offset:offset + n].view_as(p.grad))
            offset += n

    def average_all(self, value):
        t = torch.tensor([float(value)])
        dist.all_reduce(t)
        return (t / self.world_size).item()

    def shutdown(self):
        dist.destroy_process_group()
