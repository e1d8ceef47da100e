import multiprocessing as mp

import numpy as np

from envs import TowerEnv


def _worker(remote, parent, layout, seed):
    parent.close()
    env = TowerEnv(layout, seed)
    while True:
        cmd, data = remote.recv()
        if cmd == "step":
            remote.send(env.step(data))
        elif cmd == "reset":
            remote.send(env.reset())
        elif cmd == "close":
            remote.close()
            return


class SubprocVecEnv:
    def __init__(self, layouts):
        self.remotes, self.procs = [], []
        for rank, layout in enumerate(layouts):
            a, b = mp.Pipe()
            p = mp.Process(target=_worker, args=(b, a, layout, rank), name=f"env-{rank}", daemon=True)
            p.start()
            b.close()
            self.remotes.append(a)
            self.procs.append(p)

    def reset(self):
        for r in self.remotes:
            r.send(("reset", None))
        return np.stack([r.recv() for r in self.remotes])

    def step(self, actions):
        for r, a in zip(self.remotes, actions):
            r.send(("step", a))
        obs, rew, done = zip(*[r.recv() for r in self.remotes])
        return np.stack(obs), np.array(rew), np.array(done)

    def close(self):
        for r in self.remotes:
            r.send(("close", None))
        for p in self.procs:
            p.join()
