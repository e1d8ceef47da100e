"""Mixture of domain experts, the experts spread over the ranks of an expert-parallel group."""
import torch
import torch.distributed as dist
from torch import nn


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tokens, send_splits, recv_splits, group):
        ctx.splits = (send_splits, recv_splits)
        ctx.group = group
        out = tokens.new_empty(sum(recv_splits), tokens.size(1))
        dist.all_to_all_single(out, tokens.contiguous(), recv_splits, send_splits, group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        send_splits, recv_splits = ctx.splits
        out = grad.new_empty(sum(send_splits), grad.size(1))
        dist.all_to_all_single(out, grad.contiguous(), send_splits, recv_splits, group=ctx.group)
        return out, None, None, None


class LocalExperts(nn.Module):
    def __init__(self, dim, hidden, count):
        super().__init__()
        self.dim = dim
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, dim)) for _ in range(count))

    def forward(self, tokens, expert_ids):
        if tokens.size(0) == 0:
            return torch.empty(0, self.dim, device=tokens.device)
        out = torch.zeros_like(tokens)
        for index, expert in enumerate(self.experts):
            rows = (expert_ids == index).nonzero(as_tuple=True)[0]
            if rows.numel():
                out = out.index_add(0, rows, expert(tokens[rows]))
        return out


class DomainMoE(nn.Module):
    def __init__(self, dim, hidden, num_experts, group):
        super().__init__()
        self.group = group
        self.world = dist.get_world_size(group)
        self.per_rank = num_experts // self.world
        self.norm = nn.LayerNorm(dim)
        self.local = LocalExperts(dim, hidden, self.per_rank)

    def forward(self, x, domains):
        owner = domains // self.per_rank
        order = torch.argsort(owner, stable=True)
        send_counts = torch.bincount(owner, minlength=self.world)
        recv_counts = torch.empty_like(send_counts)
        dist.all_to_all_single(recv_counts, send_counts, group=self.group)
        send_splits, recv_splits = send_counts.tolist(), recv_counts.tolist()

        ids = (domains % self.per_rank)[order].unsqueeze(1)
        recv_ids = ids.new_empty(sum(recv_splits), 1)
        dist.all_to_all_single(recv_ids, ids.contiguous(), recv_splits, send_splits, group=self.group)

        sent = self.norm(x)[order]
        received = _Exchange.apply(sent, send_splits, recv_splits, self.group)
        processed = self.local(received, recv_ids.squeeze(1))
        returned = _Exchange.apply(processed, recv_splits, send_splits, self.group)
        return x + torch.zeros_like(x).index_copy(0, order, returned)
