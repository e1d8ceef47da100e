"""Local SGD: every rank trains on its own and the parameters are averaged every few steps."""
import torch
import torch.distributed as dist


class LocalSGD:
    def __init__(self, model, local_steps):
        self.model = model
        self.local_steps = local_steps
        self.num_steps = 0

    def __enter__(self):
        for p in self.model.parameters():
            dist.broadcast(p.data, src=0)
        return self

    def __exit__(self, *exc):
        if exc[0] is None:
            self._average()

    def step(self):
        self.num_steps += 1
        if self.num_steps % self.local_steps == 0:
            self._average()
            return True
        return False

    @torch.no_grad()
    def _average(self):
        flat = torch.cat([p.data.reshape(-1) for p in self.model.parameters()])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        offset = 0
        for p in self.model.parameters():
            p.copy_(flat[offset:offset + p.numel()].view_as(p))
            offset += p.numel()
