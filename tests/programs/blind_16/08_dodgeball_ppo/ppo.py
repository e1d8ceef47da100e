import time

import numpy as np


class PPOTrainer:
    def __init__(self, obs_dim, act_dim, args, hidden=256, seed=0):
        rng = self.rng = np.random.default_rng(seed)
        self.w1 = (rng.standard_normal((obs_dim, hidden)) / obs_dim ** 0.5).astype(np.float32)
        self.w2 = (rng.standard_normal((hidden, hidden)) / hidden ** 0.5).astype(np.float32)
        self.w3 = np.zeros((hidden, act_dim), dtype=np.float32)
        self.args = args
        self.updates = 0
        self.clear()
        self.recent = []

    def clear(self):
        self.obs, self.actions, self.rewards, self.size = [], [], [], 0

    def forward(self, x):
        h1 = np.tanh(x @ self.w1)
        h2 = np.tanh(h1 @ self.w2)
        return h1, h2, h2 @ self.w3

    def act(self, obs):
        mean = self.forward(obs)[2]
        return mean + 0.3 * self.rng.standard_normal(mean.shape).astype(np.float32)

    def add(self, obs, actions, rewards):
        self.obs.append(obs.copy())
        self.actions.append(actions)
        self.rewards.append(rewards)
        self.size += len(obs)
        self.recent = (self.recent + [float(rewards.mean())])[-200:]
        return len(obs)

    def mean_reward(self):
        return float(np.mean(self.recent))

    def is_ready_update(self):
        return self.size >= self.args.buffer_size

    def update_policy(self, deadline):
        obs, actions = np.concatenate(self.obs), np.concatenate(self.actions)
        rewards = np.concatenate(self.rewards)
        advantage = ((rewards - rewards.mean()) / (rewards.std() + 1e-8)).astype(np.float32)
        for _ in range(self.args.num_epoch):
            if time.monotonic() > deadline:
                break
            order = self.rng.permutation(len(obs))
            for first in range(0, len(obs), self.args.batch_size):
                index = order[first:first + self.args.batch_size]
                self._gradient_step(obs[index], actions[index], advantage[index])
        self.updates += 1
        self.clear()

    def _gradient_step(self, x, a, adv, lr=1e-3):
        h1, h2, mean = self.forward(x)
        error = np.clip((mean - a) * adv[:, None], -1, 1) / len(x)
        g3 = h2.T @ error
        d2 = (error @ self.w3.T) * (1 - h2 ** 2)
        g2 = h1.T @ d2
        d1 = (d2 @ self.w2.T) * (1 - h1 ** 2)
        self.w1 -= lr * (x.T @ d1)
        self.w2 -= lr * g2
        self.w3 -= lr * g3
