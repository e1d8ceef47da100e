"""Parameter sharding: each rank keeps 1/world of a block's weights and gathers them for use."""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import parameters_to_vector


class _GatherWeights(torch.autograd.Function):
    @staticmethod
    def forward(ctx, shard):
        parts = [torch.empty_like(shard) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, shard.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, grad):
        world, rank = dist.get_world_size(), dist.get_rank()
        grad = grad.contiguous()
        dist.all_reduce(grad)
        return grad.chunk(world)[rank] / world


class ShardedBlock(nn.Module):
    def __init__(self, block):
        super().__init__()
        world, rank = dist.get_world_size(), dist.get_rank()
        flat = parameters_to_vector(block.parameters()).detach()
        self.numel = flat.numel()
        flat = torch.nn.functional.pad(flat, (0, -self.numel % world))
        self.shard = nn.Parameter(flat.chunk(world)[rank].clone())
        self.layout = [(name, p.shape, p.numel()) for name, p in block.named_parameters()]
        self._block = [block.to("meta")]

    def forward(self, x):
        flat = _GatherWeights.apply(self.shard)[: self.numel]
        params, offset = {}, 0
        for name, shape, numel in self.layout:
            params[name] = flat[offset:offset + numel].view(shape)
            offset += numel
        return torch.func.functional_call(self._block[0], params, (x,))


def average_gradients(module):
    """For the parameters that are not sharded."""
    for p in module.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
