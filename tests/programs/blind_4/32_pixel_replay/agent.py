"""Pixel-based Q-learning with random crops."""
import argparse
import logging
import time

import numpy as np
import torch
from torch import nn

from replay import ReplayBuffer

log = logging.getLogger("agent")


def render(t, rng):
    frame = rng.integers(0, 40, (3, 84, 84), dtype=np.uint8)
    frame[:, (t // 3) % 80:(t // 3) % 80 + 4, 20:60] = 255
    return frame


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--steps", type=int, default=45000)
    p.add_argument("--capacity", type=int, default=16000)
    p.add_argument("--train-every", type=int, default=40)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    buffer = ReplayBuffer(args.capacity, (3, 84, 84))
    net = nn.Sequential(nn.Conv2d(3, 8, 8, 4), nn.ReLU(), nn.Conv2d(8, 8, 4, 2), nn.ReLU(), nn.Flatten(),
                        nn.Linear(648, 4))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
    for t in range(args.steps):
        buffer.add(render(t, rng), int(rng.integers(4)), float(t % 80 > 40))
        if t >= 200 and t % args.train_every == 0:
            obs, action, reward = buffer.sample(16, rng)
            q = net(torch.from_numpy(obs).float() / 255).gather(1, torch.from_numpy(action)[:, None]).squeeze(1)
            loss = nn.functional.mse_loss(q, torch.from_numpy(reward))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if t % 2000 == 0:
            log.info("step %d, %d transitions stored", t, args.capacity if buffer.full else buffer.pos)
        time.sleep(0.0015)


if __name__ == "__main__":
    main()
