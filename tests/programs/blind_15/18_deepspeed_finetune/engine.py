"""A small data-parallel engine with a partitioned optimizer."""
import logging
import os

import torch
import torch.distributed as dist

log = logging.getLogger("engine")


class Engine:
    def __init__(self, model, lr, gradient_accumulation_steps=1):
        self.module = model
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()
        self.lr = lr
        self.gas = gradient_accumulation_steps
        self.micro_steps = 0
        self.global_steps = 0
        params = list(model.parameters())
        self.partitions = [params[r::self.world_size] for r in range(self.world_size)]
        self.exp_avg = [torch.zeros_like(p) for p in self.partitions[self.rank]]
        for p in params:
            dist.broadcast(p.data, src=0)

    def __call__(self, *inputs):
        return self.module(*inputs)

    def backward(self, loss):
        (loss / self.gas).backward()
        self.micro_steps += 1
        if self.micro_steps % self.gas == 0:
            self.allreduce_gradients()

    def allreduce_gradients(self):
        grads = [p.grad for p in self.module.parameters()]
        flat = torch.cat([g.reshape(-1) for g in grads])
        dist.all_reduce(flat)
        flat /= self.world_size
        offset = 0
        for g in grads:
            g.copy_(flat[offset:offset + g.numel()].view_as(g))
            offset += g.numel()

    def step(self):
        if self.micro_steps % self.gas:
            return
        with torch.no_grad():
            for p, m in zip(self.partitions[self.rank], self.exp_avg):
                m.mul_(0.9).add_(p.grad, alpha=0.1)
                p.add_(m, alpha=-self.lr)
            for owner, part in enumerate(self.partitions):
                for p in part:
                    dist.broadcast(p.data, src=owner)
        self.module.zero_grad()
        self.global_steps += 1

    def save_checkpoint(self, save_dir, tag):
        path = os.path.join(save_dir, tag)
        os.makedirs(path, exist_ok=True)
        dist.barrier()
        if self.rank == 0:
            torch.save({"module": self.module.state_dict(), "global_steps": self.global_steps},
                       os.path.join(path, "mp_rank_00_model_states.pt"))
        torch.save({"exp_avg": self.exp_avg}, os.path.join(path, f"zero_pp_rank_{self.rank}_optim_states.pt"))
        dist.barrier()
        if self.rank == 0:
            with open(os.path.join(save_dir, "latest"), "w") as f:
                f.write(tag)
        return True
