import multiprocessing as mp
import random
import time

from contacts import ContactBuffer, contact_handle


class HopperEnv:
    def __init__(self, rank):
        self.rng = random.Random(rank)
        self.buf = ContactBuffer()
        self.drag = 0.5 if rank != 2 else 0.02
        self.pos = self.vel = 0.0

    def reset(self):
        self.pos, self.vel = 0.0, 0.1
        return [self.pos, self.vel, 0.0]

    def step(self, action):
        time.sleep(0.03)
        self.vel += 0.01 * (action + 1) - self.drag * self.vel * 0.1
        self.pos += self.vel * 0.05
        if self.drag > 0.1:
            self.pos = max(-3.0, min(3.0, self.pos))
        self.buf.push(self.vel)
        f = self.buf.read(contact_handle(self.pos, self.vel))
        return [self.pos, self.vel, f], self.vel, False


def _worker(remote, rank):
    env = HopperEnv(rank)
    try:
        while True:
            cmd, data = remote.recv()
            if cmd == "step":
                remote.send(env.step(data))
            elif cmd == "reset":
                remote.send(env.reset())
            elif cmd == "close":
                break
    except KeyboardInterrupt:
        pass


class MultiprocessVectorEnv:
    def __init__(self, n):
        ctx = mp.get_context("fork")
        self.remotes, self.work_remotes = zip(*[ctx.Pipe() for _ in range(n)])
        self.ps = [ctx.Process(target=_worker, args=(wr, i), name=f"vecenv-{i}", daemon=True)
                   for i, wr in enumerate(self.work_remotes)]
        for p in self.ps:
            p.start()

    def reset(self):
        for r in self.remotes:
            r.send(("reset", None))
        return [r.recv() for r in self.remotes]

    def step(self, actions):
        for r, a in zip(self.remotes, actions):
            r.send(("step", a))
        results = [remote.recv() for remote in self.remotes]
        obs, rews, dones = zip(*results)
        return list(obs), list(rews), list(dones)
