import multiprocessing as mp

import numpy as np


class BallEnv:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.n_actions = 4

    def reset(self):
        self.p = self.rng.integers(10, 74, 2)
        self.t = 0
        self.frames = np.zeros((4, 84, 84), np.uint8)
        return self._render()

    def _render(self):
        frame = self.rng.integers(0, 30, (84, 84), dtype=np.uint8)
        y, x = self.p
        frame[y - 4:y + 4, x - 4:x + 4] = 255
        self.frames = np.concatenate([self.frames[1:], frame[None]])
        return self.frames

    def step(self, a):
        self.p = np.clip(self.p + [(0, 2), (0, -2), (2, 0), (-2, 0)][a], 5, 78)
        self.t += 1
        reward = -float(np.abs(self.p - 42).sum()) / 84
        return self._render(), reward, self.t >= 200


def _worker(remote, seed):
    env = BallEnv(seed)
    while True:
        cmd, data = remote.recv()
        if cmd == "reset":
            remote.send(env.reset())
        elif cmd == "step":
            obs, reward, done = env.step(data)
            if done:
                obs = env.reset()
            remote.send((obs, reward, done))
        elif cmd == "close":
            remote.close()
            return


class SubprocVecEnv:
    n_actions = 4

    def __init__(self, n):
        self.remotes, self.processes = [], []
        for i in range(n):
            here, there = mp.Pipe()
            p = mp.Process(target=_worker, args=(there, i), name="env-%d" % i, daemon=True)
            p.start()
            there.close()
            self.remotes.append(here)
            self.processes.append(p)

    def reset(self):
        for r in self.remotes:
            r.send(("reset", None))
        return np.stack([r.recv() for r in self.remotes])

    def step(self, actions):
        for r, a in zip(self.remotes, actions):
            r.send(("step", int(a)))
        obs, rewards, dones = zip(*[r.recv() for r in self.remotes])
        return np.stack(obs), np.array(rewards, np.float32), np.array(dones, np.float32)

    def close(self):
        for r in self.remotes:
            r.send(("close", None))
        for p in self.processes:
            p.join()
