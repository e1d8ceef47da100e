"""AdamW with local steps: parameters and moments are averaged across workers on their own periods."""
import torch
import torch.distributed as dist


class LocalAdamW(torch.optim.AdamW):
    def __init__(self, params, lr, kx=8, ku=24, kv=48, group=None, **kwargs):
        super().__init__(params, lr=lr, foreach=False, **kwargs)
        self.kx, self.ku, self.kv = kx, ku, kv
        self.group = group
        self.world = dist.get_world_size(group)
        self.global_step = 0
        self.sync_rounds = 0

    def _trainable(self):
        return [p for g in self.param_groups for p in g["params"]]

    @torch.no_grad()
    def _average(self, tensors):
        flat = torch.cat([t.reshape(-1) for t in tensors])
        dist.all_reduce(flat, group=self.group)
        flat.div_(self.world)
        offset = 0
        for t in tensors:
            t.copy_(flat[offset:offset + t.numel()].view_as(t))
            offset += t.numel()

    def sync_if_needed(self):
        params = self._trainable()
        if self.global_step % self.kx == 0:
            self._average([p.data for p in params])
            self.sync_rounds += 1
        if self.global_step % self.ku == 0:
            self._average([self.state[p]["exp_avg"] for p in params])
        if self.global_step % self.kv == 0:
            self._average([self.state[p]["exp_avg_sq"] for p in params])

    def step(self, closure=None):
        result = super().step(closure)
        self.global_step += 1
        self.sync_if_needed()
        return result
