import torch


class TargetEnv:
    """Points in the plane are to be pushed to a target; episodes have a fixed length."""

    obs_dim = 6
    act_dim = 2

    def __init__(self, count, seed, length=50):
        self.gen = torch.Generator().manual_seed(seed)
        self.count = count
        self.length = length

    def _uniform(self):
        return torch.rand(self.count, 2, generator=self.gen) * 2 - 1

    def reset(self):
        self.t = 0
        self.pos = self._uniform()
        self.vel = torch.zeros(self.count, 2)
        self.target = self._uniform()
        return self._obs()

    def _obs(self):
        return torch.cat([self.pos, self.vel, self.target], dim=1)

    def step(self, act):
        self.t += 1
        self.vel = 0.9 * self.vel + 0.1 * act.clamp(-1, 1)
        self.pos = self.pos + 0.2 * self.vel
        reward = -(self.pos - self.target).norm(dim=1)
        if self.t >= self.length:
            return self.reset(), reward
        return self._obs(), reward
