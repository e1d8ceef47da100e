import torch

class SharedReplay:
    def __init__(self, ctx, capacity, dim):
        self.data = torch.zeros(capacity, dim).share_memory_()
        self.prio = torch.ones(capacity).share_memory_()
        self.capacity = capacity
        self.pos, self.size = ctx.Value("l", 0), ctx.Value("l", 0)

    def add(self, items):
        for x in items:
            self.data[self.pos.value] = torch.from_numpy(x)
            self.pos.value = (self.pos.value + 1) % self.capacity
            self.size.value = min(self.size.value + 1, self.capacity)

    def sample(self, n):
        idx = torch.multinomial(self.prio[: self.size.value], n, replacement=True)
        return idx, self.data[idx]

    def update_priorities(self, idx, p):
        self.prio[idx] = p + 1e-6
