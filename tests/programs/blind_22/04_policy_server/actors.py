"""Environment actors that query the policy server and ship rollouts."""
import multiprocessing as mp

import numpy as np


class PoleEnv:
    def __init__(self, obs_dim, seed):
        self.rng = np.random.default_rng(seed)
        self.obs_dim = obs_dim
        self.left = 0

    def reset(self):
        self.left = int(self.rng.integers(20, 60))
        return self.rng.normal(size=self.obs_dim).astype(np.float32)

    def step(self, action):
        self.left -= 1
        obs = self.rng.normal(size=self.obs_dim).astype(np.float32)
        return obs, float(obs[action] > 0), self.left <= 0


def actor_main(index, conn, rollouts, obs_dim, length):
    env = PoleEnv(obs_dim, seed=index)
    obs = env.reset()
    while True:
        steps = []
        for _ in range(length):
            conn.send(obs.tolist())
            action = conn.recv()
            nxt, reward, done = env.step(action)
            steps.append((obs, action, reward))
            obs = env.reset() if done else nxt
        rollouts.put((index, steps))


def start_actors(clients, rollouts, obs_dim, length):
    ctx = mp.get_context("fork")
    procs = []
    for i, conn in enumerate(clients):
        proc = ctx.Process(target=actor_main, args=(i, conn, rollouts, obs_dim, length),
                           name=f"actor-{i}", daemon=True)
        proc.start()
        procs.append(proc)
    return procs
