import numpy as np


class FetchPush:
    """A batch of point-mass arms that push a block to a goal."""

    obs_dim, goal_dim, action_dim, max_timesteps = 25, 3, 4, 50

    def __init__(self, n, seed):
        self.n = n
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.grip = self.rng.uniform(-0.2, 0.2, (self.n, 3))
        self.block = self.rng.uniform(-0.2, 0.2, (self.n, 3))
        self.goal = self.rng.uniform(-0.3, 0.3, (self.n, 3))
        self.vel = np.zeros((self.n, 3))
        return self.observe()

    def observe(self):
        rel = self.block - self.grip
        obs = np.concatenate([self.grip, self.block, rel, self.vel, np.sin(rel * 8), np.cos(rel * 8),
                              np.sin(self.grip * 4), np.cos(self.grip * 4), rel[:, :1]], axis=1)
        return obs, self.block.copy(), self.goal.copy()

    def step(self, action):
        self.vel = 0.7 * self.vel + 0.05 * action[:, :3]
        self.grip = np.clip(self.grip + self.vel, -0.4, 0.4)
        near = np.linalg.norm(self.block - self.grip, axis=1, keepdims=True) < 0.08
        self.block = np.where(near, self.block + 0.6 * self.vel, self.block)
        return self.observe()

    @staticmethod
    def compute_reward(achieved, goal):
        return -(np.linalg.norm(achieved - goal, axis=-1) > 0.05).astype(np.float32)
