import torch
from torch.utils.data import Dataset


class AgentTrajectories(Dataset):
    """History and future of the agents around the ego vehicle, one scene per item."""

    def __init__(self, n_scenes, history=10, future=50):
        self.n, self.h, self.f = n_scenes, history, future

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        v = torch.randn(2, generator=g)
        t = torch.arange(-self.h, self.f).float()[:, None] * 0.1
        path = t * v + 0.05 * torch.randn(self.h + self.f, 2, generator=g).cumsum(0)
        return {"history": path[: self.h], "future": path[self.h:], "speed": v.norm()}
