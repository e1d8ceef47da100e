"""Pole balancing and a vector of such environments in subprocesses."""
import math
import multiprocessing as mp
import random
import time


class PoleEnv:
    gravity, masscart, masspole, length = 9.8, 1.0, 0.1, 0.5
    force, tau = 10.0, 0.02

    def __init__(self, seed, max_steps=500, physics_delay=0.0006):
        self.rng = random.Random(seed)
        self.max_steps = max_steps
        self.delay = physics_delay

    def reset(self):
        self.state = [self.rng.uniform(-0.05, 0.05) for _ in range(4)]
        self.steps = 0
        return list(self.state)

    def step(self, action):
        x, xd, th, thd = self.state
        f = self.force if action == 1 else -self.force
        cos, sin = math.cos(th), math.sin(th)
        total = self.masscart + self.masspole
        ml = self.masspole * self.length
        temp = (f + ml * thd * thd * sin) / total
        thacc = (self.gravity * sin - cos * temp) / (
            self.length * (4.0 / 3.0 - self.masspole * cos * cos / total))
        xacc = temp - ml * thacc * cos / total
        self.state = [x + self.tau * xd, xd + self.tau * xacc,
                      th + self.tau * thd, thd + self.tau * thacc]
        self.steps += 1
        time.sleep(self.delay)
        done = abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.2095 or self.steps >= self.max_steps
        return list(self.state), 1.0, done


def env_worker(conn, seed):
    env = PoleEnv(seed)
    while True:
        cmd, arg = conn.recv()
        if cmd == "reset":
            conn.send(env.reset())
        elif cmd == "step":
            conn.send(env.step(arg))
        else:
            conn.close()
            return


class SubprocVectorEnv:
    def __init__(self, n, seed=0):
        self.conns, self.procs = [], []
        for i in range(n):
            ours, theirs = mp.Pipe()
            p = mp.Process(target=env_worker, args=(theirs, seed + i), name=f"env{i}", daemon=True)
            p.start()
            theirs.close()
            self.conns.append(ours)
            self.procs.append(p)

    def reset(self, ids):
        for i in ids:
            self.conns[i].send(("reset", None))
        return [self.conns[i].recv() for i in ids]

    def step(self, ids, actions):
        for i, a in zip(ids, actions):
            self.conns[i].send(("step", a))
        return [self.conns[i].recv() for i in ids]

    def close(self):
        for c in self.conns:
            c.send(("close", None))
        for p in self.procs:
            p.join(5)
