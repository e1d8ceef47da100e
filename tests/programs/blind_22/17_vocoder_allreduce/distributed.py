"""Minimal data parallelism on top of torch.distributed."""
import torch
import torch.distributed as dist


def init_distributed(rank, world_size, port):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank,
                            world_size=world_size)


def broadcast_parameters(module):
    for tensor in module.state_dict().values():
        if torch.is_tensor(tensor):
            dist.broadcast(tensor, 0)


def average_gradients(module):
    """Sum the gradients of all ranks and divide by their number."""
    world = dist.get_world_size()
    buckets = {}
    for param in module.parameters():
        if param.requires_grad and param.grad is not None:
            buckets.setdefault(param.dtype, []).append(param)
    for bucket in buckets.values():
        for param in bucket:
            dist.all_reduce(param.grad.data)
            param.grad.data /= world


def reduce_scalar(value):
    tensor = torch.tensor(float(value))
    dist.all_reduce(tensor)
    return (tensor / dist.get_world_size()).item()
