import collections
import multiprocessing as mp
import queue
import time

import numpy as np


class SlowSim:
    """Talks to a physics server that answers once per simulated second."""

    def __init__(self, seed, latency):
        self.rng = np.random.default_rng(seed)
        self.latency = latency

    def rollout(self, frames, policy):
        time.sleep(self.latency * self.rng.uniform(0.9, 1.1))
        obs = self.rng.standard_normal((frames, 24)).astype(np.float32)
        act = np.tanh(obs @ policy)
        return obs, act, -np.square(act - 0.3).sum(1)


def _serve(conn, out, index, latency):
    sim = SlowSim(index, latency)
    while True:
        cmd, payload = conn.recv()
        if cmd == "close":
            return
        out.put((index, sim.rollout(*payload)))


class MultiSyncCollector:
    def __init__(self, n, frames_per_batch, latency, total):
        ctx = mp.get_context("fork")
        self.out = ctx.Queue()
        self.frames, self.total = frames_per_batch // n, total
        self.policy = np.zeros((24, 4), np.float32)
        self.pipes, self.procs = [], []
        for i in range(n):
            ours, theirs = ctx.Pipe()
            p = ctx.Process(target=_serve, args=(theirs, self.out, i, latency), name=f"sim-{i}", daemon=True)
            p.start()
            self.pipes.append(ours)
            self.procs.append(p)

    def __iter__(self):
        for _ in range(self.total):
            for pipe in self.pipes:
                pipe.send(("rollout", (self.frames, self.policy)))
            got = collections.deque()
            while len(got) < len(self.procs):
                try:
                    got.append(self.out.get(timeout=1.0)[1])
                except queue.Empty:
                    for p in self.procs:
                        if not p.is_alive():
                            raise RuntimeError(f"{p.name} ended with {p.exitcode}")
            yield [np.concatenate(part) for part in zip(*got)]

    def shutdown(self):
        for pipe in self.pipes:
            pipe.send(("close", None))
        for p in self.procs:
            p.join()
