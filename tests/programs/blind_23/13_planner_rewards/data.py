import torch


class ReplayBuffer:
    """Mined driving scenes of one rank."""

    def __init__(self, rank, scenes, candidates=16, horizon=40, features=96):
        gen = torch.Generator().manual_seed(500 + rank)
        self.scene = torch.randn(scenes, features, generator=gen)
        basis = torch.randn(features, horizon, generator=torch.Generator().manual_seed(9)) / features ** 0.5
        self.expert = torch.tanh(self.scene @ basis)
        noise = torch.randn(scenes, candidates, horizon, generator=gen)
        self.candidates = self.expert.unsqueeze(1) + 0.4 * noise
        self.reward = -noise.pow(2).mean(-1) + 0.1 * torch.randn(scenes, candidates, generator=gen)
        self.gen = gen

    def batches(self, size):
        order = torch.randperm(len(self.scene), generator=self.gen)
        for start in range(0, len(order) - size + 1, size):
            pick = order[start:start + size]
            yield {"scene": self.scene[pick], "expert": self.expert[pick],
                   "candidates": self.candidates[pick], "reward": self.reward[pick]}
