"""Pipeline-parallel group with tensor-dict send and receive."""
import pickle

import torch
import torch.distributed as dist


class GroupCoordinator:
    def __init__(self, rank, world_size):
        self.rank, self.world_size = rank, world_size
        self.cpu_group = dist.new_group(backend="gloo")

    @property
    def next_rank(self):
        return (self.rank + 1) % self.world_size

    @property
    def prev_rank(self):
        return (self.rank - 1) % self.world_size

    def send_object(self, obj, dst):
        payload = torch.frombuffer(bytearray(pickle.dumps(obj)), dtype=torch.uint8)
        dist.send(torch.tensor([payload.numel()]), dst=dst, group=self.cpu_group)
        dist.send(payload, dst=dst, group=self.cpu_group)

    def recv_object(self, src):
        size = torch.empty(1, dtype=torch.long)
        dist.recv(size, src=src, group=self.cpu_group)
        payload = torch.empty(int(size), dtype=torch.uint8)
        dist.recv(payload, src=src, group=self.cpu_group)
        return pickle.loads(payload.numpy().tobytes())

    def isend_tensor_dict(self, tensors, dst):
        """Post the sends of all tensors and return their handles."""
        metadata = [(k, tuple(v.shape), v.dtype) for k, v in tensors.items()]
        self.send_object(metadata, dst)
        return [(dist.isend(v.contiguous(), dst=dst), v) for v in tensors.values()]

    def recv_tensor_dict(self, src):
        tensors = {}
        for name, shape, dtype in self.recv_object(src):
            tensors[name] = torch.empty(shape, dtype=dtype)
            dist.recv(tensors[name], src=src)
        return tensors
