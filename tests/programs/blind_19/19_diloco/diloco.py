"""DiLoCo: many local AdamW steps, then one outer Nesterov step on the averaged pseudo gradient."""
import torch
import torch.distributed as dist


class DiLoCo:
    def __init__(self, model, inner, outer_lr=0.7, momentum=0.9, sync_every=60):
        self.model, self.inner, self.sync_every = model, inner, sync_every
        for p in model.parameters():
            dist.broadcast(p.data, 0)
        self.global_params = [p.detach().clone() for p in model.parameters()]
        self.outer = torch.optim.SGD(self.global_params, lr=outer_lr, momentum=momentum, nesterov=True)
        self.local_step = 0
        self.rounds = 0

    def step(self):
        self.inner.step()
        self.local_step += 1
        if self.local_step < self.sync_every:
            return False
        self.sync()
        return True

    @torch.no_grad()
    def sync(self):
        world = dist.get_world_size()
        for g, p in zip(self.global_params, self.model.parameters()):
            g.grad = g - p
            dist.all_reduce(g.grad)
            g.grad /= world
        self.outer.step()
        for g, p in zip(self.global_params, self.model.parameters()):
            p.copy_(g)
        self.local_step = 0
        self.rounds += 1
