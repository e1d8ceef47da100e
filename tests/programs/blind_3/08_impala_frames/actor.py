import time

import numpy as np


class FrameEnv:
    def __init__(self, seed, render_ms):
        self.rng = np.random.default_rng(seed)
        self.render_ms = render_ms

    def step(self, action):
        time.sleep(self.render_ms / 1000)
        return self.rng.normal(size=(8, 8)).astype(np.float32), float(self.rng.normal())


def run_actor(rank, queue, unroll, render_ms):
    env = FrameEnv(rank, render_ms)
    frame, _ = env.step(0)
    while True:
        frames, rewards = [], []
        for _ in range(unroll):
            action = int(frame.sum() > 0)
            frame, r = env.step(action)
            frames.append(frame)
            rewards.append(r)
        queue.put((np.stack(frames), np.array(rewards, dtype=np.float32)))
