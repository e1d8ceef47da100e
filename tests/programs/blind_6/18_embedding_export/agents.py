"""Trajectory samples as dictionaries, one history array per agent."""
import numpy as np
from torch.utils.data import Dataset


class AgentHistories(Dataset):
    def __init__(self, length, steps=50, channels=80):
        self.length, self.steps, self.channels = length, steps, channels

    def __len__(self):
        return self.length

    def __getitem__(self, idx):
        rng = np.random.default_rng(idx)
        vel = rng.standard_normal((self.steps, self.channels)).astype(np.float32)
        return {"history": vel.cumsum(0), "agent": idx, "final": vel.sum(0)}
