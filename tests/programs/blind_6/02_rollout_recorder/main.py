"""Roll out a policy and record what it sees."""
import argparse
import logging
import multiprocessing as mp
import os
import tempfile
import time

import numpy as np
import torch
from torch import nn

from recorder import recorder_main

log = logging.getLogger("rollout")


class DotWorld:
    def __init__(self, size, seed=0):
        self.size, self.rng = size, np.random.default_rng(seed)
        self.reset()

    def reset(self):
        self.pos = self.rng.integers(8, self.size - 8, size=2)
        return self.render()

    def step(self, action):
        move = [(-1, 0), (1, 0), (0, -1), (0, 1)][action]
        self.pos = np.clip(self.pos + move, 4, self.size - 5)
        return self.render()

    def render(self):
        img = self.rng.integers(0, 40, size=(self.size, self.size, 3), dtype=np.uint8)
        y, x = self.pos
        img[y - 3 : y + 3, x - 3 : x + 3] = (240, 120, 20)
        return img


class PixelPolicy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 8, 5, stride=4), nn.ReLU(), nn.Flatten(), nn.LazyLinear(4)
        )

    @torch.no_grad()
    def act(self, frame):
        x = torch.from_numpy(frame).permute(2, 0, 1)[None].float() / 255
        return int(torch.distributions.Categorical(logits=self.net(x)[0]).sample())


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--frames", type=int, default=6000)
    ap.add_argument("--fps", type=int, default=120)
    ap.add_argument("--size", type=int, default=64)
    ap.add_argument("--out", default=None)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s rollout %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    out = args.out or os.path.join(tempfile.mkdtemp(prefix="rollout_"), "episode.bin")

    frames = mp.Queue(maxsize=64)
    rec = mp.Process(
        target=recorder_main, args=(frames, out, (args.size, args.size), args.fps), daemon=False
    )
    rec.start()

    env, policy = DotWorld(args.size), PixelPolicy()
    frame = env.reset()
    for step in range(1, args.frames + 1):
        frames.put(frame)
        frame = env.step(policy.act(frame))
        if step % 60 == 0:
            log.info("step %d", step)
        time.sleep(1 / args.fps)
    frames.put(None)
    rec.join()
    log.info("episode saved to %s", out)


if __name__ == "__main__":
    main()
