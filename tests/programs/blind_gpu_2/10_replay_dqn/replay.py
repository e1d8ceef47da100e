import numpy as np
import torch


class EpisodeReplay:
    """Keeps the most recent `capacity` segments of experience in host memory."""

    def __init__(self, capacity, seed=0):
        self.capacity = capacity
        self.segments = []
        self.next_slot = 0
        self.inserted = 0
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return len(self.segments)

    def add(self, segment):
        if len(self.segments) < self.capacity:
            self.segments.append(segment)
        else:
            self.segments[self.next_slot] = segment
        self.next_slot = (self.next_slot + 1) % self.capacity
        self.inserted += 1

    def nbytes(self):
        return sum(s["frames"].nbytes for s in self.segments)

    def sample(self, batch_size):
        frames, nxt, actions, rewards = [], [], [], []
        for i in self.rng.integers(0, len(self.segments), batch_size):
            seg = self.segments[i]
            t = int(self.rng.integers(0, len(seg["actions"]) - 1))
            frames.append(seg["frames"][t])
            nxt.append(seg["frames"][t + 1])
            actions.append(seg["actions"][t])
            rewards.append(seg["rewards"][t])
        return (torch.from_numpy(np.stack(frames)), torch.from_numpy(np.stack(nxt)),
                torch.tensor(np.array(actions)), torch.tensor(np.array(rewards)))
