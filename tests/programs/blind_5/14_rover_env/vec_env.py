import logging
import multiprocessing as mp
import time

import numpy as np

from terrain import FlatHeightmap, NativeHeightmap

log = logging.getLogger("vec_env")


class RoverEnv:
    def __init__(self, seed):
        self.seed = seed
        self.rng = np.random.default_rng(seed)
        self.terrain = FlatHeightmap(64)

    def set_stage(self, stage):
        self.terrain = NativeHeightmap(512) if stage >= 2 else FlatHeightmap(64)
        self.terrain.fill(self.seed + stage)

    def reset(self):
        self.pos = self.rng.uniform(0, self.terrain.side - 1, 2)
        self.t = 0
        return self._obs()

    def _obs(self):
        return np.array([*self.pos, self.terrain.height(*self.pos)], dtype=np.float32)

    def step(self, action):
        self.pos = np.clip(self.pos + action, 0, self.terrain.side - 1)
        self.t += 1
        time.sleep(0.01)
        done = self.t >= 60
        return (self.reset() if done else self._obs()), -abs(self.terrain.height(*self.pos)), done


def env_worker(conn, seed):
    env = RoverEnv(seed)
    while True:
        cmd, arg = conn.recv()
        if cmd == "stage":
            env.set_stage(arg)
            conn.send(env.reset())
        elif cmd == "step":
            conn.send(env.step(arg))
        elif cmd == "close":
            return


class VecEnv:
    def __init__(self, n):
        self.conns, self.procs = [], []
        self.last = [(np.zeros(3, dtype=np.float32), 0.0, False)] * n
        for i in range(n):
            ours, theirs = mp.Pipe()
            proc = mp.Process(target=env_worker, args=(theirs, i), daemon=True)
            proc.start()
            theirs.close()
            self.conns.append(ours)
            self.procs.append(proc)

    def set_stage(self, i, stage):
        self.conns[i].send(("stage", stage))
        try:
            return self.conns[i].recv()
        except (EOFError, ConnectionError):
            return self.last[i][0]

    def step(self, actions):
        for i, conn in enumerate(self.conns):
            try:
                conn.send(("step", actions[i]))
                self.last[i] = conn.recv()
            except (EOFError, ConnectionError):
                log.debug("env %d sent no observation, keeping the last one", i)
        obs, rewards, dones = zip(*self.last)
        return np.stack(obs), np.array(rewards), np.array(dones)
