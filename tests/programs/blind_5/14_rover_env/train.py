import argparse
import logging

import numpy as np
import torch
from torch import nn

from vec_env import VecEnv

log = logging.getLogger("train")


class Curriculum:
    """Moves one environment after the other to the next terrain stage."""

    def __init__(self, n, every):
        self.n, self.every = n, every

    def due(self, update):
        if update and update % self.every == 0:
            k = update // self.every - 1
            stage = 1 + k // self.n
            return (k % self.n, stage) if stage <= 2 and not (stage == 2 and k % self.n) else None


def train(args):
    torch.set_num_threads(1)
    envs = VecEnv(args.envs)
    for i in range(args.envs):
        envs.set_stage(i, 1)
    policy = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 2))
    curriculum = Curriculum(args.envs, args.stage_every)
    obs = np.zeros((args.envs, 3), dtype=np.float32)
    for update in range(args.updates):
        if (change := curriculum.due(update)) is not None:
            log.info("env %d enters terrain stage %d", *change)
            envs.set_stage(*change)
        total = 0.0
        for _ in range(args.rollout):
            with torch.no_grad():
                actions = policy(torch.from_numpy(obs)) + 0.3 * torch.randn(args.envs, 2)
            obs, rewards, _ = envs.step(actions.numpy())
            total += rewards.mean()
        if update % 5 == 0:
            log.info("update %d mean reward %.4f", update, total / args.rollout)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--envs", type=int, default=3)
    p.add_argument("--updates", type=int, default=3000)
    p.add_argument("--rollout", type=int, default=8)
    p.add_argument("--stage-every", type=int, default=4)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    train(p.parse_args())
