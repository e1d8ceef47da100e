"""Environment processes: a noisy reaching task."""
import logging

import numpy as np

from protocol import PolicyClient

log = logging.getLogger("env")


class Reacher:
    def __init__(self, seed, max_steps):
        self.rng = np.random.default_rng(seed)
        self.max_steps = max_steps

    def observe(self):
        pad = self.rng.standard_normal(6).astype(np.float32)
        return np.concatenate([self.pos, self.vel, self.goal, pad]).astype(np.float32)

    def reset(self):
        self.pos = self.rng.uniform(-1, 1, 2)
        self.vel = np.zeros(2)
        self.goal = self.rng.uniform(-1, 1, 2)
        self.t = 0
        return self.observe()

    def step(self, action):
        force = np.array([[1, 0], [-1, 0], [0, 1], [0, -1]])[action]
        for _ in range(20):
            self.vel = 0.98 * self.vel + 0.002 * force + 0.001 * self.rng.standard_normal(2)
            self.pos = np.clip(self.pos + 0.05 * self.vel, -2, 2)
        self.t += 1
        distance = float(np.linalg.norm(self.pos - self.goal))
        terminated = distance < 0.1
        truncated = self.t >= self.max_steps
        return self.observe(), -distance, terminated, truncated


def run_env(index, requests, replies, max_steps, seed):
    client = PolicyClient(index, requests, replies)
    env = Reacher(seed + index, max_steps)
    episodes, returns = 0, []
    while True:
        obs = env.reset()
        client.initialize()
        total, terminated, truncated = 0.0, False, False
        while not (terminated or truncated):
            obs, reward, terminated, truncated = env.step(client.act(obs))
            total += reward
        if terminated:
            client.delete()
        episodes += 1
        returns.append(total)
        if episodes % 50 == 0:
            log.info("env %d episodes %d mean return %.1f", index, episodes, np.mean(returns[-50:]))
            del returns[:-50]
