import logging
import time

import numpy as np

from stream import connect

log = logging.getLogger("actor")


class ReacherEnv:
    """Point mass that has to reach a goal; observations carry a small range-sensor image."""

    def __init__(self, rng, pixels):
        self.rng, self.pixels = rng, pixels
        self.grid = np.linspace(-1, 1, pixels, dtype=np.float32)

    def reset(self):
        self.pos = self.rng.uniform(-1, 1, 2)
        self.vel = np.zeros(2)
        self.goal = self.rng.uniform(-1, 1, 2)
        return self.observe()

    def observe(self):
        img = np.exp(-((self.grid - self.pos[0]) ** 2) * 8) + np.exp(-((self.grid - self.goal[0]) ** 2) * 8)
        return np.concatenate([self.pos, self.vel, self.goal, img]).astype(np.float32)

    def step(self, action):
        self.vel = 0.9 * self.vel + 0.05 * np.clip(action, -1, 1)
        self.pos = np.clip(self.pos + self.vel, -1.5, 1.5)
        return self.observe(), -float(np.linalg.norm(self.pos - self.goal))


def play(env, weights, rng, length, noise):
    obs = np.empty((length + 1, 6 + env.pixels), np.float32)
    act = np.empty((length, 2), np.float32)
    rew = np.empty(length, np.float32)
    obs[0] = env.reset()
    for t in range(length):
        act[t] = np.tanh(obs[t] @ weights["w"] + weights["b"]) + noise * rng.standard_normal(2)
        obs[t + 1], rew[t] = env.step(act[t])
    return {"obs": obs, "act": act, "rew": rew}


def main(aid, port, args):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    rng = np.random.default_rng(args.seed + aid)
    env = ReacherEnv(rng, args.pixels)
    stream = connect(port)
    stream.send({"actor": aid})
    weights = stream.recv()
    count = 0
    try:
        while True:
            begin = time.time()
            stream.send(play(env, weights, rng, args.length, args.noise))
            weights = stream.recv()
            count += 1
            if count % 100 == 0:
                log.info("actor %d: %d episodes", aid, count)
            time.sleep(max(0.0, args.period - (time.time() - begin)))
    except (EOFError, ConnectionError):
        log.info("actor %d: learner is gone", aid)
    finally:
        stream.close()
