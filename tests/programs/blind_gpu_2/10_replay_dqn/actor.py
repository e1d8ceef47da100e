import logging
import os
import queue
import threading
import time

import numpy as np
import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"


class QNet(nn.Module):
    def __init__(self, actions=6):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(4, 16, 8, stride=4), nn.ReLU(),
            nn.Conv2d(16, 32, 4, stride=2), nn.ReLU(), nn.Flatten())
        self.head = nn.Sequential(nn.Linear(32 * 9 * 9, 256), nn.ReLU(), nn.Linear(256, actions))

    def forward(self, frames):
        return self.head(self.conv(frames.float() / 255.0))


class ArcadeEnv:
    """Frame-stacked environment running at its native frame rate."""

    def __init__(self, seed, fps=400):
        self.rng = np.random.default_rng(seed)
        self.period = 1.0 / fps
        self.stack = np.zeros((4, 84, 84), np.uint8)

    def step(self, action):
        time.sleep(self.period)
        self.stack[:-1] = self.stack[1:]
        self.stack[-1] = self.rng.integers(0, 255, (84, 84), np.uint8)
        return self.stack, float(self.rng.random() < 0.02) * (1 if action % 2 else -1)


@torch.no_grad()
def actor_main(index, segments, weights, cfg):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    end = threading.Timer(cfg["walltime"], os._exit, (0,))
    end.daemon = True
    end.start()
    torch.set_num_threads(1)
    net, env, rng = QNet().to(device).eval(), ArcadeEnv(index), np.random.default_rng(index)
    obs, version = env.stack, 0
    while True:
        try:
            version, state = weights.get_nowait()
            net.load_state_dict({k: torch.from_numpy(v) for k, v in state.items()})
        except queue.Empty:
            pass
        frames = np.empty((cfg["segment"], 4, 84, 84), np.uint8)
        actions = np.empty(cfg["segment"], np.int64)
        rewards = np.empty(cfg["segment"], np.float32)
        for t in range(cfg["segment"]):
            if t % 4 == 0:
                greedy = int(net(torch.from_numpy(obs).to(device).unsqueeze(0)).argmax())
            action = greedy if rng.random() > 0.05 else int(rng.integers(6))
            frames[t], actions[t] = obs, action
            obs, rewards[t] = env.step(action)
        segments.put({"actor": index, "version": version, "frames": frames, "actions": actions,
                      "rewards": rewards})
