"""Pole-like toy environments, one process each."""
import multiprocessing as mp

import numpy as np


class Balance:
    """Keeps a point near the origin; the episode ends when it leaves the band."""

    def __init__(self, seed, limit):
        self.rng = np.random.default_rng(seed)
        self.limit = limit

    def reset(self):
        self.x = self.rng.normal(0, 0.1, 4).astype(np.float32)
        return self.x

    def step(self, force):
        self.x = self.x * 0.97 + self.rng.normal(0, 0.02, 4).astype(np.float32)
        self.x[0] += 0.05 * force
        return self.x, 1.0, bool(abs(self.x[0]) > 0.6)


def rollout(env, weights, horizon):
    obs = env.reset()
    states, ret = [], 0.0
    for _ in range(horizon):
        force = float(np.tanh(obs @ weights))
        states.append(obs.copy())
        obs, r, done = env.step(force)
        ret += r
        if done:
            break
    return np.stack(states), ret


def env_process(conn, seed, episodes, horizon):
    env = Balance(seed, horizon)
    while True:
        msg = conn.recv()
        if msg is None:
            return
        out = [rollout(env, w, horizon) for w in msg for _ in range(episodes)]
        conn.send(out)


def start_envs(n, episodes, horizon):
    conns, procs = [], []
    for i in range(n):
        ours, theirs = mp.Pipe()
        p = mp.Process(target=env_process, args=(theirs, i, episodes, horizon), name=f"env-{i}", daemon=True)
        p.start()
        theirs.close()
        conns.append(ours)
        procs.append(p)
    return conns, procs
