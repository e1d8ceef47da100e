"""Replay buffer that returns short histories around the sampled time steps."""
import collections
import random

import numpy as np

Experience = collections.namedtuple("Experience", "state action reward done")


class ReplayBuffer:
    def __init__(self, buffer_size, history_length=2, future_length=1):
        self._buffer_size = buffer_size
        self._history_length = history_length
        self._future_length = future_length
        self._buffer = collections.deque(maxlen=buffer_size)

    def __len__(self):
        return len(self._buffer)

    def add_experience(self, e):
        self._buffer.append(e)

    def extend(self, experiences):
        self._buffer.extend(experiences)

    def get_sample_indices(self, batch_size):
        low, high = self._history_length, len(self._buffer) - self._future_length
        return [random.randrange(low, high) for _ in range(batch_size)]

    def get_experiences(self, indices):
        states, next_states, actions, rewards, dones = [], [], [], [], []
        for i in indices:
            window = [self._buffer[j] for j in range(i - self._history_length, i + self._future_length + 1)]
            history, future = window[: -self._future_length], window[self._future_length:]
            states.append(np.concatenate([e.state for e in history]))
            next_states.append(np.concatenate([e.state for e in future]))
            e = window[self._history_length]
            actions.append(e.action)
            rewards.append(e.reward)
            dones.append(e.done)
        return (np.stack(states), np.asarray(actions), np.asarray(rewards, np.float32),
                np.stack(next_states), np.asarray(dones, np.float32))
