"""Small DQN: two actor processes fill a shared replay, the main process learns from it."""
import argparse
import logging
import multiprocessing as mp
import time

import numpy as np
import torch
from torch import nn

from replay import SharedReplay

log = logging.getLogger("dqn")

SIDE = 42
ACTIONS = 4


class GridEnv:
    """Moving dot on a screen; the reward is higher towards the middle."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.reset()

    def _screen(self):
        s = np.zeros((2, SIDE, SIDE), dtype=np.uint8)
        s[0, self.y, self.x] = 255
        s[1] = self.rng.integers(0, 8, (SIDE, SIDE))
        return s

    def reset(self):
        self.y, self.x = self.rng.integers(0, SIDE, 2)
        return self._screen()

    def step(self, a):
        dy, dx = [(0, 1), (0, -1), (1, 0), (-1, 0)][a]
        self.y, self.x = (self.y + dy) % SIDE, (self.x + dx) % SIDE
        return self._screen(), 1.0 - (abs(self.y - SIDE / 2) + abs(self.x - SIDE / 2)) / SIDE


def actor(idx, replay, fps, stop):
    env, rng = GridEnv(idx), np.random.default_rng(1000 + idx)
    obs = env.reset()
    while not stop.is_set():
        a = int(rng.integers(ACTIONS))
        nxt, r = env.step(a)
        replay.add({"obs": obs, "action": a, "reward": r, "next_obs": nxt, "priority": 0.1 + abs(r)})
        obs = nxt
        time.sleep(1.0 / fps)


def q_net():
    return nn.Sequential(
        nn.Conv2d(2, 8, 5, stride=3), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
        nn.Flatten(), nn.LazyLinear(64), nn.ReLU(), nn.Linear(64, ACTIONS),
    )


def to_input(a):
    return torch.from_numpy(a).float() / 255


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--actors", type=int, default=2)
    p.add_argument("--fps", type=float, default=150)
    p.add_argument("--capacity", type=int, default=6000)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--warmup", type=int, default=100)
    p.add_argument("--updates", type=int, default=20000)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)

    manager = mp.Manager()
    replay = SharedReplay(manager.list(), manager.Lock(), args.capacity)
    stop = mp.Event()
    procs = [mp.Process(target=actor, args=(i, replay, args.fps, stop), name=f"actor-{i}", daemon=True)
             for i in range(args.actors)]
    for proc in procs:
        proc.start()
    while len(replay) < args.warmup:
        time.sleep(0.1)

    net, target = q_net(), q_net()
    probe = torch.zeros(1, 2, SIDE, SIDE)
    net(probe), target(probe)
    target.load_state_dict(net.state_dict())
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    t0 = time.time()
    for update in range(1, args.updates + 1):
        _, b = replay.sample(args.batch_size)
        with torch.no_grad():
            goal = torch.from_numpy(b["reward"]) + 0.97 * target(to_input(b["next_obs"])).max(1).values
        q = net(to_input(b["obs"])).gather(1, torch.from_numpy(b["action"])[:, None])[:, 0]
        loss = nn.functional.smooth_l1_loss(q, goal)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if update % 100 == 0:
            target.load_state_dict(net.state_dict())
        if update % 10 == 0:
            log.info("update %d loss %.4f replay %d, %.1f updates/s", update, loss.item(), len(replay),
                     10 / (time.time() - t0))
            t0 = time.time()
    stop.set()


if __name__ == "__main__":
    main()
