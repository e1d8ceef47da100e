import queue
import time

import numpy as np


class PixelCatcher:
    """A falling blob, a paddle; 84x84 grey frames."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.reset()

    def reset(self):
        self.x, self.y, self.paddle = int(self.rng.integers(4, 80)), 0, 42

    def step(self, action):
        self.paddle = int(np.clip(self.paddle + (action % 3 - 1) * 3, 6, 78))
        self.y += 3
        frame = np.zeros((84, 84), dtype=np.uint8)
        frame[self.y % 84:self.y % 84 + 4, self.x:self.x + 4] = 255
        frame[80:, self.paddle - 6:self.paddle + 6] = 128
        done = self.y >= 80
        reward = float(done and abs(self.x - self.paddle) < 7)
        if done:
            self.reset()
        return frame, reward, done


def actor_loop(index, experience, stop, chunk=64, fps=320):
    env = PixelCatcher(index)
    rng = np.random.default_rng(1000 + index)
    while not stop.is_set():
        t0 = time.time()
        frames = np.empty((chunk, 84, 84), dtype=np.uint8)
        actions = rng.integers(0, 6, size=chunk)
        rewards = np.empty(chunk, dtype=np.float32)
        dones = np.empty(chunk, dtype=np.float32)
        for i in range(chunk):
            frames[i], rewards[i], dones[i] = env.step(int(actions[i]))
        while not stop.is_set():
            try:
                experience.put((frames, actions, rewards, dones), timeout=0.5)
                break
            except queue.Full:
                pass
        time.sleep(max(0.0, chunk / fps - (time.time() - t0)))
