"""Actors step a small vector control task and send transitions with initial errors."""
import logging
import time

import numpy as np
import torch
from torch import nn


class QNetwork(nn.Sequential):
    def __init__(self, observations=8, actions=8, width=128):
        super().__init__(nn.Linear(observations, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
                         nn.Linear(width, actions))


class PointMass:
    def __init__(self, rng):
        self.rng = rng
        self.reset()

    def reset(self):
        self.state = self.rng.normal(size=8).astype(np.float32)
        self.t = 0
        return self.state

    def step(self, action):
        push = np.zeros(8, dtype=np.float32)
        push[action % 4] = 0.1 if action < 4 else -0.1
        self.state = (0.98 * self.state + push + self.rng.normal(scale=0.02, size=8)).astype(np.float32)
        self.t += 1
        return self.state, np.float32(-np.abs(self.state[:4]).sum()), np.float32(self.t >= 200)


def run_actor(index, args, experience, weights):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    torch.set_num_threads(1)
    rng = np.random.default_rng(args.seed + index)
    net = QNetwork().eval()
    envs = [PointMass(rng) for _ in range(args.envs_per_actor)]
    states = [e.state for e in envs]
    steps = 0
    while True:
        started = time.monotonic()
        if steps % 400 == 0:
            with weights.get_lock():
                flat = torch.frombuffer(weights.get_obj(), dtype=torch.float32).clone()
            torch.nn.utils.vector_to_parameters(flat, net.parameters())
        transitions, errors = [], []
        for _ in range(args.chunk // len(envs)):
            with torch.inference_mode():
                q = net(torch.from_numpy(np.stack(states)))
            actions = q.argmax(-1).numpy()
            explore = rng.random(len(envs)) < 0.2
            actions[explore] = rng.integers(0, 8, explore.sum())
            for i, env in enumerate(envs):
                nxt, reward, done = env.step(int(actions[i]))
                transitions.append((states[i], np.int64(actions[i]), reward, nxt, done))
                errors.append(float(reward - q[i, actions[i]]))
                states[i] = env.reset() if done else nxt
            steps += 1
        experience.put((transitions, errors))
        time.sleep(max(0.0, args.chunk / args.actor_rate - (time.monotonic() - started)))
