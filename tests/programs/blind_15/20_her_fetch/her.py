import numpy as np


class her_sampler:
    def __init__(self, replay_k, reward_func):
        self.future_p = 1 - 1.0 / (1 + replay_k)
        self.reward_func = reward_func

    def sample_her_transitions(self, episode_batch, batch_size):
        T = episode_batch["actions"].shape[1]
        n_episodes = episode_batch["actions"].shape[0]
        episode_idxs = np.random.randint(0, n_episodes, batch_size)
        t_samples = np.random.randint(T, size=batch_size)
        transitions = {key: episode_batch[key][episode_idxs, t_samples].copy() for key in episode_batch}
        her_indexes = np.where(np.random.uniform(size=batch_size) < self.future_p)
        future_offset = (np.random.uniform(size=batch_size) * (T - t_samples)).astype(int)
        future_t = (t_samples + 1 + future_offset)[her_indexes]
        transitions["g"][her_indexes] = episode_batch["ag"][episode_idxs[her_indexes], future_t]
        transitions["r"] = self.reward_func(transitions["ag_next"], transitions["g"])[:, None]
        return transitions
