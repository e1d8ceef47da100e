"""An actor: steps a vector of environments and publishes its experience in segments."""
import logging

import numpy as np
import torch
from torch import nn

from transport import SegmentWriter

log = logging.getLogger("actor")


def make_policy(actions: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 8, 8, 4), nn.ReLU(), nn.Conv2d(8, 16, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 6 * 6, actions + 1))


class DriftEnv:
    """Envs x 64 x 64 frames of a drifting pattern; the reward is for following the drift."""

    def __init__(self, envs: int, seed: int):
        self.rng = np.random.default_rng(seed)
        self.frames = torch.from_numpy(self.rng.random((envs, 64, 64), dtype=np.float32))
        self.drift = torch.from_numpy(self.rng.integers(0, 4, envs))

    def step(self, actions: torch.Tensor):
        reward = (actions == self.drift).float()
        self.frames = torch.roll(self.frames, 1, dims=2)
        return self.frames, reward


class RolloutBuffer:
    def __init__(self, length: int, envs: int):
        self.obs = torch.zeros(length, envs, 64, 64)
        self.actions = torch.zeros(length, envs, dtype=torch.long)
        self.rewards = torch.zeros(length, envs)
        self.length = length
        self.cursor = 0

    def add(self, obs, actions, rewards):
        self.obs[self.cursor] = obs
        self.actions[self.cursor] = actions
        self.rewards[self.cursor] = rewards
        self.cursor += 1

    def segment(self, steps: int) -> dict:
        part = slice(self.cursor - steps, self.cursor)
        return {"obs": self.obs[part], "actions": self.actions[part], "rewards": self.rewards[part]}

    def rewind(self):
        self.cursor = 0


def run_actor(index: int, conn, args):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s[%(process)d] %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(index)
    policy = make_policy(4)
    env = DriftEnv(args.envs, index)
    buffer = RolloutBuffer(args.rollout, args.envs)
    writer = SegmentWriter(conn)
    obs, published = env.frames, 0
    while True:
        with torch.no_grad():
            logits = policy(obs.unsqueeze(1))[:, :4]
        actions = torch.distributions.Categorical(logits=logits).sample()
        following, reward = env.step(actions)
        buffer.add(obs, actions, reward)
        obs = following
        if buffer.cursor % args.segment == 0:
            writer.publish(buffer.segment(args.segment))
            published += 1
            if published % 100 == 0:
                log.info("actor %d published %d segments of %d steps", index, published, args.segment)
        if buffer.cursor == buffer.length:
            buffer.rewind()
