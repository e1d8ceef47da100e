import argparse
import logging
import multiprocessing as mp
import time

import numpy as np
import torch
from torch import nn

from recorder import EpisodeRecorder

log = logging.getLogger("evaluate")
SIDE = 32


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))

    def act(self, obs):
        with torch.no_grad():
            return self.net(torch.as_tensor(obs, dtype=torch.float32)).numpy()


def render(pos):
    img = np.zeros((SIDE, SIDE, 3), dtype=np.uint8)
    x, y = (np.clip(pos, -1, 1) * (SIDE // 2 - 2) + SIDE // 2).astype(int)
    img[y - 1 : y + 2, x - 1 : x + 2] = 255
    img[:, :, 2] = np.random.randint(0, 40, (SIDE, SIDE))
    return img


def rollout(episode, steps, frames):
    torch.set_num_threads(1)
    torch.manual_seed(episode)
    policy = Policy()
    state = np.zeros(4)
    total = 0.0
    for _ in range(steps):
        a = policy.act(state)
        state[2:] = 0.9 * state[2:] + 0.05 * a + np.random.normal(0, 0.02, 2)
        state[:2] = np.clip(state[:2] + state[2:] * 0.1, -1, 1)
        total -= float(np.square(state[:2]).sum())
        frames.put(("frame", render(state[:2])))
        time.sleep(0.004)
    frames.put(("done", total))


def evaluate(args):
    for episode in range(args.episodes):
        frames = mp.Queue(maxsize=16)
        actor = mp.Process(target=rollout, args=(episode, args.steps, frames))
        actor.start()
        recorder = EpisodeRecorder(SIDE, SIDE)
        while True:
            kind, payload = frames.get()
            if kind == "done":
                break
            recorder.write(payload)
            if recorder.frames % 100 == 0:
                log.info("episode %d: %d frames", episode, recorder.frames)
        actor.join()
        log.info("episode %d return %.2f, video %s", episode, payload, recorder.close())


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--episodes", type=int, default=5)
    p.add_argument("--steps", type=int, default=2500)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    evaluate(p.parse_args())
