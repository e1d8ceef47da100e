import time

import numpy as np


class GridEnv:
    """A small pixel world that renders one frame per step."""

    def __init__(self, seed, size):
        self.rng = np.random.default_rng(seed)
        self.size = size

    def step(self, action):
        frame = self.rng.integers(0, 255, (self.size, self.size), dtype=np.uint8)
        return frame, float(action == int(frame[0, 0]) % 4)


def actor_main(aid, transitions, parameters, size, fps, rollout):
    env = GridEnv(aid, size)
    bias = 0
    period = rollout / fps
    due = time.time()
    while True:
        frames, rewards = [], []
        for _ in range(rollout):
            frame, rew = env.step(bias % 4)
            frames.append(frame)
            rewards.append(rew)
        transitions.put({"actor": aid, "frames": np.stack(frames), "rewards": rewards})
        if not parameters.empty():
            bias = parameters.get()
        due = max(due + period, time.time() - period)
        time.sleep(max(0.0, due - time.time()))
