import torch


class ReplayBuffer:
    """Ring of transitions; pages are only touched as they are written."""

    def __init__(self, capacity, obs_shape):
        self.obs = torch.empty(capacity, *obs_shape, dtype=torch.uint8)
        self.act = torch.empty(capacity, dtype=torch.int64)
        self.rew = torch.empty(capacity)
        self.capacity, self.pos, self.full = capacity, 0, False

    def add(self, obs, act, rew):
        self.obs[self.pos] = obs
        self.act[self.pos], self.rew[self.pos] = act, rew
        self.pos += 1
        if self.pos == self.capacity:
            self.pos, self.full = 0, True

    def __len__(self):
        return self.capacity if self.full else self.pos

    def sample(self, n):
        i = torch.randint(0, len(self), (n,))
        return self.obs[i], self.act[i], self.rew[i]
