import multiprocessing as mp
import time

import numpy as np

OBS, ACT = 128, 8


class DodgeBallEnv:
    def __init__(self, agents, seed):
        self.rng = np.random.default_rng(seed)
        self.agents = agents
        self.obs = None

    def reset(self):
        self.obs = self.rng.standard_normal((self.agents, OBS)).astype(np.float32)
        return self.obs

    def step(self, actions):
        time.sleep(0.025)  # physics
        self.obs = 0.9 * self.obs + 0.1 * self.rng.standard_normal(self.obs.shape).astype(np.float32)
        reward = (actions * self.obs[:, :ACT]).mean(axis=1)
        return self.obs, reward


def worker(conn, agents, seed):
    env = DodgeBallEnv(agents, seed)
    while True:
        try:
            cmd, data = conn.recv()
        except (EOFError, KeyboardInterrupt):
            break
        if cmd == "reset":
            conn.send(env.reset())
        elif cmd == "step":
            conn.send(env.step(data))
        elif cmd == "close":
            break
    conn.close()


class SubprocessEnvManager:
    obs_dim, act_dim = OBS, ACT

    def __init__(self, n_envs, agents):
        ctx = mp.get_context("fork")
        self.agents, self.conns, self.processes = agents, [], []
        for i in range(n_envs):
            ours, theirs = ctx.Pipe()
            process = ctx.Process(target=worker, args=(theirs, agents, i), name=f"UnityEnv-{i}", daemon=True)
            process.start()
            theirs.close()
            self.conns.append(ours)
            self.processes.append(process)

    def reset(self):
        for conn in self.conns:
            conn.send(("reset", None))
        return np.concatenate([conn.recv() for conn in self.conns])

    def step(self, actions):
        for i, conn in enumerate(self.conns):
            conn.send(("step", actions[i * self.agents:(i + 1) * self.agents]))
        obs, rewards = zip(*[conn.recv() for conn in self.conns])
        return np.concatenate(obs), np.concatenate(rewards)

    def close(self):
        for conn in self.conns:
            conn.send(("close", None))
        for process in self.processes:
            process.join()
