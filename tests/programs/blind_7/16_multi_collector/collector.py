"""Synchronous collector over several environment processes."""
import collections
import logging
import multiprocessing as mp
import time
from queue import Empty

import numpy as np
import torch

log = logging.getLogger(__name__)

POLL_S = 1.0
MAX_IDLE_POLLS = 120


class ArmSimulator:
    """Stands for the physics server: a step costs a fixed time."""

    def __init__(self, seed, step_s):
        self.rng = np.random.default_rng(seed)
        self.step_s = step_s
        self.q = np.zeros(6, dtype=np.float32)

    def step(self, action):
        time.sleep(self.step_s)
        self.q = 0.9 * self.q + 0.1 * action + self.rng.normal(0, 0.01, 6).astype(np.float32)
        return self.q.copy(), -float(np.abs(self.q - 0.5).sum())


def collect(idx, commands, out, step_s):
    torch.set_num_threads(1)
    sim, rng = ArmSimulator(idx, step_s), np.random.default_rng(50 + idx)
    while True:
        cmd = commands.recv()
        if cmd is None:
            return
        weights, frames = cmd
        rows = []
        obs = sim.q.copy()
        for _ in range(frames):
            act = rng.normal(0, 1, 6) if weights is None else np.tanh(weights @ obs) + rng.normal(0, 0.1, 6)
            nxt, reward = sim.step(act.astype(np.float32))
            rows.append((obs, act.astype(np.float32), reward, nxt))
            obs = nxt
        out.put((rows, idx))


class SyncCollector:
    def __init__(self, n, step_s):
        self.n = n
        self.out = mp.Queue()
        self.pipes, self.procs = [], []
        for i in range(n):
            ours, theirs = mp.Pipe()
            p = mp.Process(target=collect, args=(i, theirs, self.out, step_s), name=f"collector-{i}", daemon=True)
            p.start()
            self.pipes.append(ours)
            self.procs.append(p)

    def _check_procs(self):
        for p in self.procs:
            if not p.is_alive():
                raise RuntimeError(f"{p.name} ended with exit code {p.exitcode}")

    def gather(self, weights, frames):
        """Asks every process for `frames` steps and returns the rows of all of them."""
        for pipe in self.pipes:
            pipe.send((weights, frames))
        got = collections.deque()
        t0 = time.monotonic()
        while len(got) < self.n and time.monotonic() - t0 < POLL_S * MAX_IDLE_POLLS:
            for _ in range(self.n):
                try:
                    got.append(self.out.get(timeout=POLL_S))
                except Empty:
                    self._check_procs()
        return [row for rows, _ in got for row in rows]

    def close(self):
        for pipe in self.pipes:
            pipe.send(None)
        for p in self.procs:
            p.join()
