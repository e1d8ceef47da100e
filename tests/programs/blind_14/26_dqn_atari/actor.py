"""An actor plays a small pixel game and sends its transitions to the learner."""
import time

import numpy as np


class PixelGame:
    def __init__(self, seed, size=84):
        self.rng = np.random.default_rng(seed)
        self.size = size

    def reset(self):
        self.ball = self.rng.integers(8, self.size - 8, 2).astype(float)
        self.speed = self.rng.choice([-2.0, 2.0], 2)
        self.paddle = self.size // 2
        return self.frame()

    def frame(self):
        img = np.zeros((self.size, self.size), np.uint8)
        y, x = self.ball.astype(int)
        img[max(y - 2, 0):y + 2, max(x - 2, 0):x + 2] = 255
        img[-3:, max(self.paddle - 6, 0):self.paddle + 6] = 180
        return img

    def step(self, action):
        self.paddle = int(np.clip(self.paddle + (action - 1) * 3, 6, self.size - 6))
        self.ball += self.speed
        for k in (0, 1):
            if not 2 < self.ball[k] < self.size - 3:
                self.speed[k] *= -1
                self.ball[k] = np.clip(self.ball[k], 2, self.size - 3)
        low = self.ball[0] >= self.size - 4
        hit = low and abs(self.ball[1] - self.paddle) < 8
        return self.frame(), float(hit) - float(low and not hit), bool(low and not hit)


def act(index, out, stop, eps, fps, seed):
    rng = np.random.default_rng(seed + 100 * index)
    game = PixelGame(seed + index)
    state = game.reset()
    chunk, next_time = [], time.monotonic()
    while not stop.is_set():
        ball_x = int(state[:-3].max(0).argmax())
        action = int(rng.integers(3)) if rng.random() < eps else int(np.sign(ball_x - game.paddle) + 1)
        next_state, reward, done = game.step(action)
        chunk.append((state, action, reward, next_state, done))
        state = game.reset() if done else next_state
        if len(chunk) == 20:
            out.send(chunk)
            chunk = []
        next_time = max(next_time + 1.0 / fps, time.monotonic() - 0.5)
        time.sleep(max(0.0, next_time - time.monotonic()))
    out.close()
