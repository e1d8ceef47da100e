"""Off-policy training for the navigation task, with demonstrations from recorded runs."""
import argparse
import logging
import multiprocessing as mp
import queue
import time

import numpy as np

from actor import actor_loop
from replay_buffer import Experience, ReplayBuffer

log = logging.getLogger("nav")


class QNetwork:
    """Two layer network with a hand written update; states are 3 stacked frames."""

    def __init__(self, inp, actions, hidden=64, lr=1e-3, gamma=0.97):
        rng = np.random.default_rng(0)
        self.w1 = (rng.standard_normal((inp, hidden)) / np.sqrt(inp)).astype(np.float32)
        self.w2 = (rng.standard_normal((hidden, actions)) / np.sqrt(hidden)).astype(np.float32)
        self.lr, self.gamma = lr, gamma

    def forward(self, x):
        h = np.maximum(x @ self.w1, 0)
        return h, h @ self.w2

    def update(self, s, a, r, s2, d):
        target = r * 0.1 + self.gamma * (1 - d) * self.forward(s2)[1].max(1)
        h, q = self.forward(s)
        err = np.zeros_like(q)
        rows = np.arange(len(a))
        err[rows, a] = np.clip(q[rows, a] - target, -1, 1) / len(a)
        gw2, gh = h.T @ err, (err @ self.w2.T) * (h > 0)
        self.w1 -= self.lr * (s.T @ gh)
        self.w2 -= self.lr * gw2
        return float(np.abs(err).sum())


def load_recorded_runs(n, dim=6, seed=5):
    rng = np.random.default_rng(seed)
    states = rng.standard_normal((n, dim)).astype(np.float32)
    actions = rng.integers(0, 2 * dim, n)
    rewards = -np.abs(states).sum(1)
    for i in range(n):
        yield Experience(states[i], int(actions[i]), float(rewards[i]), i % 100 == 99)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--actors", type=int, default=2)
    p.add_argument("--buffer-size", type=int, default=1_000_000)
    p.add_argument("--recorded", type=int, default=900_000, help="steps of recorded runs to add")
    p.add_argument("--add-recorded-at", type=int, default=600, help="update at which they are added")
    p.add_argument("--batch-size", type=int, default=256)
    p.add_argument("--minutes", type=float, default=5)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")

    frames = mp.Queue(maxsize=50)
    actors = [mp.Process(target=actor_loop, args=(10 + i, frames), daemon=True, name=f"actor-{i}")
              for i in range(args.actors)]
    for a in actors:
        a.start()
    buffer = ReplayBuffer(args.buffer_size)
    net = QNetwork(18, 12)
    end = time.time() + 60 * args.minutes
    updates, last, last_updates, loss = 0, time.time(), 0, 0.0
    while time.time() < end:
        try:
            buffer.extend(Experience(*row) for row in frames.get(block=len(buffer) < 100))
        except queue.Empty:
            pass
        if updates == args.add_recorded_at:
            start = time.time()
            buffer.extend(load_recorded_runs(args.recorded))
            log.info("recorded runs added in %.1fs, buffer %d", time.time() - start, len(buffer))
            args.add_recorded_at = -1
        s, a, r, s2, d = buffer.get_experiences(buffer.get_sample_indices(args.batch_size))
        loss = net.update(s, a, r, s2, d)
        updates += 1
        if time.time() - last > 2:
            fps = (updates - last_updates) * args.batch_size / (time.time() - last)
            log.info("update %d buffer %d loss %.3f  %.0f samples/s", updates, len(buffer), loss, fps)
            last, last_updates = time.time(), updates
    log.info("finished, %d updates", updates)


if __name__ == "__main__":
    main()
