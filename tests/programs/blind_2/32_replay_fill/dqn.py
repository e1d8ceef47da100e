import argparse
import logging
import threading
import time

import numpy as np
import torch
from torch import nn

from replay import ReplayBuffer

log = logging.getLogger("dqn")


class Catch:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.reset()

    def reset(self):
        self.x, self.ball, self.y = 40, int(self.rng.integers(84)), 0

    def frame(self):
        f = np.zeros((2, 84, 84), np.uint8)
        f[0, min(self.y, 83), self.ball] = 255
        f[1, 83, max(0, self.x - 4):self.x + 5] = 255
        return f

    def step(self, action):
        self.x = int(np.clip(self.x + 4 * (action - 1), 0, 83))
        self.y += 3
        if self.y < 83:
            return 0.0
        hit = float(abs(self.x - self.ball) <= 5)
        self.reset()
        return hit


def act(buffer, stop, fps, seed):
    env, rng = Catch(seed), np.random.default_rng(seed)
    while not stop.is_set():
        obs = env.frame()
        a = int(rng.integers(3))
        buffer.add(obs, a, env.step(a))
        if buffer.pos % 20 == 0:
            time.sleep(20 / fps)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--capacity", type=int, default=40_000)
    p.add_argument("--fps", type=float, default=1500)
    p.add_argument("--seconds", type=float, default=60)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    buffer = ReplayBuffer(args.capacity, (2, 84, 84))
    stop = threading.Event()
    actor = threading.Thread(target=act, args=(buffer, stop, args.fps, 0), name="actor")
    actor.start()
    net = nn.Sequential(nn.Conv2d(2, 8, 8, 4), nn.ReLU(), nn.Conv2d(8, 16, 4, 2), nn.ReLU(), nn.Flatten(),
                        nn.Linear(16 * 81, 3))
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    rng = np.random.default_rng(1)
    end, updates = time.monotonic() + args.seconds, 0
    while time.monotonic() < end:
        if buffer.size < 200:
            time.sleep(0.1)
            continue
        obs, a, r = buffer.sample(32, rng)
        q = net(torch.from_numpy(obs).float() / 255)[torch.arange(32), torch.from_numpy(a)]
        loss = (q - torch.from_numpy(r)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        updates += 1
        time.sleep(0.05)
        if updates % 50 == 0:
            log.info("update %d loss %.4f, buffer %d/%d", updates, loss.item(), buffer.size, args.capacity)
    stop.set()
    actor.join()


if __name__ == "__main__":
    main()
