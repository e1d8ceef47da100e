"""Sparse feed-forward block: top-1 routed experts, one group of experts per rank."""
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class AllToAll(torch.autograd.Function):
    """Exchange rows between ranks; the backward pass sends the gradients the other way."""

    @staticmethod
    def forward(ctx, rows, in_splits, out_splits):
        ctx.in_splits = in_splits
        ctx.out_splits = out_splits
        out = rows.new_empty((sum(out_splits),) + rows.shape[1:])
        dist.all_to_all_single(out, rows.contiguous(), out_splits, in_splits)
        return out

    @staticmethod
    def backward(ctx, grad):
        out = grad.new_empty((sum(ctx.in_splits),) + grad.shape[1:])
        dist.all_to_all_single(out, grad.contiguous(), ctx.in_splits, ctx.out_splits)
        return out, None, None


class Expert(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.up = nn.Linear(dim, hidden)
        self.down = nn.Linear(hidden, dim)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class ExpertGroup(nn.Module):
    """The experts that live on this rank. Rows arrive as (source rank, local expert) runs."""

    def __init__(self, dim, hidden, num_local):
        super().__init__()
        self.num_local = num_local
        self.experts = nn.ModuleList(Expert(dim, hidden) for _ in range(num_local))

    def forward(self, rows, counts):
        if rows.size(0) == 0:
            return torch.empty_like(rows)
        chunks = list(torch.split(rows, counts.flatten().tolist()))
        out = [None] * len(chunks)
        for e, expert in enumerate(self.experts):
            picked = range(e, len(chunks), self.num_local)
            sizes = [chunks[i].size(0) for i in picked]
            if sum(sizes) == 0:
                for i in picked:
                    out[i] = chunks[i]
                continue
            done = expert(torch.cat([chunks[i] for i in picked]))
            for i, part in zip(picked, torch.split(done, sizes)):
                out[i] = part
        return torch.cat(out)


class MoELayer(nn.Module):
    def __init__(self, dim, hidden, num_experts, world):
        super().__init__()
        assert num_experts % world == 0
        self.world = world
        self.num_experts = num_experts
        self.num_local = num_experts // world
        self.norm = nn.LayerNorm(dim)
        self.router = nn.Linear(dim, num_experts, bias=False)
        self.group = ExpertGroup(dim, hidden, self.num_local)
        self.load = torch.zeros(num_experts, dtype=torch.long)
        self.balance = None

    def forward(self, x):
        h = self.norm(x)
        probs = F.softmax(self.router(h), dim=-1)
        weight, expert = probs.max(dim=-1)
        order = torch.argsort(expert, stable=True)
        self.load = torch.bincount(expert, minlength=self.num_experts)
        frac = self.load.float() / expert.numel()
        self.balance = self.num_experts * (frac * probs.mean(dim=0)).sum()

        send = self.load.view(self.world, self.num_local)
        recv = torch.empty_like(send)
        dist.all_to_all_single(recv, send)
        in_splits, out_splits = send.sum(1).tolist(), recv.sum(1).tolist()

        rows = AllToAll.apply(h[order], in_splits, out_splits)
        rows = self.group(rows, recv)
        rows = AllToAll.apply(rows, out_splits, in_splits)

        y = torch.zeros_like(h).index_copy(0, order, rows)
        return x + weight.unsqueeze(-1) * y
