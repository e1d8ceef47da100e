import collections
import random

import numpy as np
import torch


def phi(state):
    """Feature extractor: uint8 frames to floats in [0, 1]."""
    return np.asarray(state, dtype=np.float32) / 255


def batch_states(states):
    return torch.as_tensor([phi(s) for s in states], dtype=torch.float32)


def batch_experiences(experiences, gamma):
    """Turns a list of transitions into a dict of tensors."""
    return {
        "state": batch_states([e["state"] for e in experiences]),
        "action": torch.as_tensor([e["action"] for e in experiences]),
        "reward": torch.as_tensor([e["reward"] for e in experiences], dtype=torch.float32),
        "next_state": batch_states([e["next_state"] for e in experiences]),
        "discount": torch.as_tensor([0.0 if e["is_state_terminal"] else gamma for e in experiences]),
    }


class ReplayBuffer:
    def __init__(self, capacity):
        self.memory = collections.deque(maxlen=capacity)

    def __len__(self):
        return len(self.memory)

    def append(self, transition):
        self.memory.append(transition)

    def sample(self, n):
        return [self.memory[i] for i in random.sample(range(len(self.memory)), n)]
