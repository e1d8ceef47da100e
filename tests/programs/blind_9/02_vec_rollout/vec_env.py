import multiprocessing as mp
import time

import numpy as np


class PointMass:
    """2-d point mass with rendered observations."""

    def __init__(self, seed, size=48):
        self.rng = np.random.default_rng(seed)
        self.size = size
        self.reset()

    def reset(self):
        self.pos = self.rng.uniform(-1, 1, 2)
        self.vel = np.zeros(2)
        self.t = 0
        return self.render()

    def render(self):
        grid = np.linspace(-1.5, 1.5, self.size)
        dx = grid[None, :] - self.pos[0]
        dy = grid[:, None] - self.pos[1]
        return np.exp(-(dx ** 2 + dy ** 2) * 20).astype(np.float32)

    def step(self, action):
        self.vel = 0.9 * self.vel + 0.1 * np.clip(action, -1, 1)
        self.pos = np.clip(self.pos + self.vel, -1.5, 1.5)
        self.t += 1
        done = self.t >= 200
        reward = -float(np.square(self.pos).sum())
        obs = self.reset() if done else self.render()
        return obs, reward, done


class NumpyPolicy:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.layers = None

    def load(self, layers):
        self.layers = layers

    def act(self, obs):
        if self.layers is None:
            return self.rng.uniform(-1, 1, 2)
        h = obs.reshape(-1)
        for w, b in self.layers[:-1]:
            h = np.maximum(w @ h + b, 0)
        w, b = self.layers[-1]
        return np.tanh(w @ h + b) + self.rng.normal(0, 0.1, 2)


def env_worker(conn, seed):
    env, policy = PointMass(seed), NumpyPolicy(seed)
    obs = env.render()
    while True:
        cmd, payload = conn.recv()
        if cmd == "rollout":
            frames, actions, rewards = [], [], []
            for _ in range(payload):
                a = policy.act(obs)
                frames.append(obs)
                actions.append(a)
                obs, r, _ = env.step(a)
                rewards.append(r)
                time.sleep(0.002)
            conn.send((np.stack(frames), np.stack(actions), np.asarray(rewards, np.float32)))
        elif cmd == "load":
            policy.load(payload)
        elif cmd == "close":
            return


class VecRollout:
    def __init__(self, n, seed):
        ctx = mp.get_context("fork")
        self.conns, self.procs = [], []
        for i in range(n):
            here, there = ctx.Pipe()
            p = ctx.Process(target=env_worker, args=(there, seed + i), name=f"env-{i}", daemon=True)
            p.start()
            there.close()
            self.conns.append(here)
            self.procs.append(p)

    def request(self, steps):
        for c in self.conns:
            c.send(("rollout", steps))

    def collect(self):
        parts = [c.recv() for c in self.conns]
        return [np.concatenate(x) for x in zip(*parts)]

    def load_policy(self, layers):
        for c in self.conns:
            c.send(("load", layers))

    def close(self):
        for c in self.conns:
            c.send(("close", None))
        for p in self.procs:
            p.join()
