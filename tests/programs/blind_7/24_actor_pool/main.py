"""Value learning on mazes: actors on a process pool, learner in the main process."""
import argparse
import logging
import multiprocessing as mp
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import torch
from torch import nn

from mazes import Maze, level_for

log = logging.getLogger("maze")

_queue = None


def init_actor(queue):
    global _queue
    _queue = queue
    torch.set_num_threads(1)


def actor_loop(idx, per_level, max_steps, step_s):
    """Plays episodes for ever; easier mazes first."""
    rng = np.random.default_rng(idx)
    episode = 0
    while True:
        maze = Maze(level_for(episode, per_level), seed=1000 * idx + episode)
        obs = maze.observe()
        for _ in range(max_steps):
            action = int(rng.integers(4))
            nxt, reward, done = maze.step(action)
            time.sleep(step_s)
            _queue.put((idx, obs, action, reward, nxt, done))
            obs = nxt
            if done:
                break
        episode += 1


class Learner:
    def __init__(self, capacity):
        self.capacity = capacity
        self.rows = []
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(25, 64), nn.ReLU(), nn.Linear(64, 4))
        self.opt = torch.optim.Adam(self.net.parameters(), lr=1e-3)

    def add(self, row):
        self.rows.append(row)
        if len(self.rows) > self.capacity:
            del self.rows[: self.capacity // 10]

    def update(self, rng, n):
        rows = [self.rows[i] for i in rng.integers(0, len(self.rows), n)]
        obs = torch.from_numpy(np.stack([r[1] for r in rows]))
        nxt = torch.from_numpy(np.stack([r[4] for r in rows]))
        act = torch.tensor([r[2] for r in rows])[:, None]
        rew = torch.tensor([r[3] for r in rows])
        end = torch.tensor([float(r[5]) for r in rows])
        with torch.no_grad():
            goal = rew + 0.98 * (1 - end) * self.net(nxt).max(1).values.clamp(-1, 1)
        loss = nn.functional.mse_loss(self.net(obs).gather(1, act)[:, 0], goal)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--actors", type=int, default=3)
    p.add_argument("--episodes-per-level", type=int, nargs="+", default=[400, 400, 2],
                   help="how fast each actor goes through the curriculum")
    p.add_argument("--max-steps", type=int, default=60)
    p.add_argument("--step-ms", type=float, default=4.0)
    p.add_argument("--capacity", type=int, default=20_000)
    p.add_argument("--seconds", type=float, default=600)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)

    queue = mp.Queue(maxsize=2000)
    pool = ProcessPoolExecutor(args.actors, initializer=init_actor, initargs=(queue,))
    actors = [pool.submit(actor_loop, i, args.episodes_per_level[i], args.max_steps, args.step_ms / 1000)
              for i in range(args.actors)]
    learner, rng = Learner(args.capacity), np.random.default_rng(0)
    t_end, t_log, frames, loss = time.monotonic() + args.seconds, time.monotonic(), 0, 0.0
    while time.monotonic() < t_end:
        for _ in range(32):
            learner.add(queue.get())
            frames += 1
        loss = learner.update(rng, 128)
        if time.monotonic() - t_log > 2:
            log.info("loss %.4f, %.0f frames/s, buffer %d", loss, frames / (time.monotonic() - t_log),
                     len(learner.rows))
            t_log, frames = time.monotonic(), 0
    for f in actors:
        f.cancel()
    pool.shutdown(wait=False, cancel_futures=True)


if __name__ == "__main__":
    main()
