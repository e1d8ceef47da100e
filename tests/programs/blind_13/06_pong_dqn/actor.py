import time

import numpy as np


class FrameStack:
    """Keeps the last k frames, newest last."""

    def __init__(self, k, shape):
        self.frames = np.zeros((k,) + shape, dtype=np.uint8)

    def push(self, frame):
        self.frames = np.concatenate([self.frames[1:], frame[None]])
        return self.frames


class PongLike:
    """A ball and a paddle drawn on a 84x84 screen."""

    def __init__(self, seed, delay):
        self.rng = np.random.default_rng(seed)
        self.delay = delay

    def reset(self):
        self.pos = self.rng.uniform(10, 74, 2)
        self.vel = self.rng.choice([-2.0, 2.0], 2)
        self.paddle = 42.0
        return self._render()

    def _render(self):
        frame = np.zeros((84, 84), dtype=np.uint8)
        x, y = self.pos.astype(int)
        frame[max(y - 1, 0):y + 2, max(x - 1, 0):x + 2] = 255
        frame[80:82, int(max(self.paddle - 6, 0)):int(self.paddle + 6)] = 160
        return frame

    def step(self, action):
        time.sleep(self.delay)
        self.paddle = float(np.clip(self.paddle + (action - 1) * 3, 6, 78))
        self.pos = self.pos + self.vel
        for i in range(2):
            if not 2 < self.pos[i] < 82:
                self.vel[i] = -self.vel[i]
        done = self.pos[1] >= 80
        reward = 0.0
        if done:
            reward = 1.0 if abs(self.pos[0] - self.paddle) < 7 else -1.0
        return self._render(), reward, bool(done)


def run_actor(index, transitions, delay):
    env = PongLike(index, delay)
    rng = np.random.default_rng(100 + index)
    while True:
        stack = FrameStack(4, (84, 84))
        state = stack.push(env.reset())
        done = False
        while not done:
            action = int(rng.integers(3))
            frame, reward, done = env.step(action)
            next_state = stack.push(frame)
            transitions.put({"state": state, "action": action, "reward": reward,
                             "next_state": next_state, "is_state_terminal": done})
            state = next_state
