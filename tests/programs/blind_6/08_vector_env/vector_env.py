"""Step several environments in subprocesses."""
import multiprocessing as mp

import numpy as np


def env_worker(make_env, conn):
    env = make_env()
    while True:
        cmd, data = conn.recv()
        if cmd == "reset":
            conn.send(env.reset())
        elif cmd == "step":
            obs, reward, done, info = env.step(data)
            if done:
                info["terminal_obs"] = obs
                obs = env.reset()
            conn.send((obs, reward, done, info))
        elif cmd == "close":
            conn.close()
            break


class SubprocVectorEnv:
    def __init__(self, env_fns):
        ctx = mp.get_context("fork")
        self.conns, self.procs = [], []
        for i, fn in enumerate(env_fns):
            ours, theirs = ctx.Pipe()
            p = ctx.Process(target=env_worker, args=(fn, theirs), name=f"env-{i}")
            p.start()
            theirs.close()
            self.conns.append(ours)
            self.procs.append(p)

    def reset(self):
        for c in self.conns:
            c.send(("reset", None))
        return np.stack([c.recv() for c in self.conns])

    def step(self, actions):
        for c, a in zip(self.conns, actions):
            c.send(("step", a))
        obs, rew, done, info = zip(*[c.recv() for c in self.conns])
        return np.stack(obs), np.array(rew, np.float32), np.array(done), info

    def close(self):
        for c in self.conns:
            c.send(("close", None))
        for p in self.procs:
            p.join()
