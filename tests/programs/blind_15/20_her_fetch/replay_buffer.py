import threading

import numpy as np


class replay_buffer:
    """Episodes of (obs, achieved goal, goal, action), preallocated."""

    def __init__(self, env_params, buffer_size, sample_func):
        self.env_params = env_params
        self.T = env_params["max_timesteps"]
        self.size = buffer_size // self.T
        self.current_size = 0
        self.n_transitions_stored = 0
        self.sample_func = sample_func
        self.buffers = {
            "obs": np.empty([self.size, self.T + 1, env_params["obs"]]),
            "ag": np.empty([self.size, self.T + 1, env_params["goal"]]),
            "g": np.empty([self.size, self.T, env_params["goal"]]),
            "actions": np.empty([self.size, self.T, env_params["action"]]),
        }
        self.lock = threading.Lock()

    def store_episode(self, episode_batch):
        mb_obs, mb_ag, mb_g, mb_actions = episode_batch
        batch_size = mb_obs.shape[0]
        with self.lock:
            idxs = self._get_storage_idx(inc=batch_size)
            self.buffers["obs"][idxs] = mb_obs
            self.buffers["ag"][idxs] = mb_ag
            self.buffers["g"][idxs] = mb_g
            self.buffers["actions"][idxs] = mb_actions
            self.n_transitions_stored += self.T * batch_size

    def sample(self, batch_size):
        temp_buffers = {}
        with self.lock:
            for key in self.buffers.keys():
                temp_buffers[key] = self.buffers[key][:self.current_size].copy()
        temp_buffers["obs_next"] = temp_buffers["obs"][:, 1:, :]
        temp_buffers["ag_next"] = temp_buffers["ag"][:, 1:, :]
        return self.sample_func(temp_buffers, batch_size)

    def _get_storage_idx(self, inc=1):
        if self.current_size + inc <= self.size:
            idx = np.arange(self.current_size, self.current_size + inc)
        elif self.current_size < self.size:
            overflow = inc - (self.size - self.current_size)
            idx = np.concatenate([np.arange(self.current_size, self.size),
                                  np.random.randint(0, self.current_size, overflow)])
        else:
            idx = np.random.randint(0, self.size, inc)
        self.current_size = min(self.size, self.current_size + inc)
        return idx
