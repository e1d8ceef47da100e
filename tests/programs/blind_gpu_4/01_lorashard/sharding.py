"""Flat parameter sharding: one flat buffer per model, one contiguous chunk of it per rank."""
import torch
import torch.distributed as dist
from torch import nn


class FlatSharded:
    def __init__(self, module: nn.Module, group):
        self.module = module
        self.group = group
        self.rank = dist.get_rank(group)
        self.world = dist.get_world_size(group)
        self.params = list(module.named_parameters())
        device = self.params[0][1].device

        total = sum(p.numel() for _, p in self.params)
        self.chunk = -(-total // self.world)
        self.full = torch.zeros(self.chunk * self.world, device=device)
        self.full_grad = torch.zeros_like(self.full)
        self.grad_shard = torch.zeros(self.chunk, device=device)

        self.ranges = []
        offset = 0
        for _, p in self.params:
            self.full[offset:offset + p.numel()].copy_(p.detach().reshape(-1))
            self.ranges.append((offset, offset + p.numel()))
            offset += p.numel()

        begin = self.rank * self.chunk
        self.shard = self.full[begin:begin + self.chunk].clone()
        self.pieces = []
        for (_, p), (lo, hi) in zip(self.params, self.ranges):
            lo = min(max(lo - begin, 0), self.chunk)
            hi = min(max(hi - begin, 0), self.chunk)
            piece = nn.Parameter(self.shard[lo:hi], requires_grad=p.requires_grad)
            self.pieces.append((piece, lo, hi))

    def local_parameters(self):
        return [piece for piece, _, _ in self.pieces if piece.requires_grad]

    @torch.no_grad()
    def unshard(self):
        dist.all_gather_into_tensor(self.full, self.shard, group=self.group)
        for (_, p), (lo, hi) in zip(self.params, self.ranges):
            p.data = self.full[lo:hi].view(p.shape)

    @torch.no_grad()
    def reduce_grads(self):
        self.full_grad.zero_()
        for (_, p), (lo, hi) in zip(self.params, self.ranges):
            if p.grad is not None:
                self.full_grad[lo:hi].copy_(p.grad.reshape(-1))
                p.grad = None
        dist.reduce_scatter_tensor(self.grad_shard, self.full_grad, group=self.group)
        self.grad_shard.div_(self.world)
        for piece, lo, hi in self.pieces:
            if piece.requires_grad and hi > lo:
                piece.grad = self.grad_shard[lo:hi]
