"""Replay memory with a fixed number of transitions."""
from collections import deque, namedtuple

import numpy as np

Experience = namedtuple("Experience", "state action reward next_state done")


class ReplayBuffer:
    def __init__(self, buffer_size, batch_size, seed):
        self.memory = deque(maxlen=buffer_size)
        self.batch_size = batch_size
        self.rng = np.random.default_rng(seed)

    def add(self, *transition):
        self.memory.append(Experience(*transition))

    def __len__(self):
        return len(self.memory)

    def sample(self):
        picks = self.rng.integers(0, len(self.memory), self.batch_size)
        batch = [self.memory[i] for i in picks]
        states = np.stack([e.state for e in batch])
        next_states = np.stack([e.next_state for e in batch])
        rest = np.array([(e.action, e.reward, e.done) for e in batch], dtype=np.float32)
        return states, rest[:, 0].astype(np.int64), rest[:, 1], next_states, rest[:, 2]
