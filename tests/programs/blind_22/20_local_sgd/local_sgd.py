"""Local SGD: ranks train on their own and average their weights every `sync_every` steps."""
import torch
import torch.distributed as dist


class LocalSGD:
    def __init__(self, model, optimizer, sync_every):
        self.model = model
        self.optimizer = optimizer
        self.sync_every = sync_every
        self.local_step = 0
        self.rounds = 0
        for p in model.parameters():
            dist.broadcast(p.data, src=0)

    def step(self):
        self.optimizer.step()
        self.local_step += 1
        if self.local_step % self.sync_every == 0:
            self.average()
            return True
        return False

    @torch.no_grad()
    def average(self):
        params = list(self.model.parameters())
        flat = torch.cat([p.reshape(-1) for p in params])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        offset = 0
        for p in params:
            p.copy_(flat[offset:offset + p.numel()].view_as(p))
            offset += p.numel()
        self.rounds += 1


@torch.no_grad()
def fingerprint(model):
    return sum(p.double().abs().sum().item() for p in model.parameters())
