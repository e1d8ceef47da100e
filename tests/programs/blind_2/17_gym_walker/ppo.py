import argparse
import functools
import logging

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from envs import WalkerEnv

log = logging.getLogger("ppo")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--num-envs", type=int, default=4)
    p.add_argument("--rollout", type=int, default=64)
    p.add_argument("--updates", type=int, default=5000)
    p.add_argument("--cpu-budget", type=int, default=6, help="CPU seconds per environment")
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    envs = gym.vector.AsyncVectorEnv(
        [functools.partial(WalkerEnv, cpu_budget=args.cpu_budget) for _ in range(args.num_envs)])
    obs, _ = envs.reset(seed=1)
    policy = nn.Sequential(nn.Linear(obs.shape[1], 64), nn.Tanh(), nn.Linear(64, envs.single_action_space.shape[0]))
    opt = torch.optim.Adam(policy.parameters(), lr=3e-4)
    for update in range(args.updates):
        logps, rewards = [], []
        for _ in range(args.rollout):
            dist = torch.distributions.Normal(policy(torch.as_tensor(obs, dtype=torch.float32)), 0.5)
            action = dist.sample()
            logps.append(dist.log_prob(action).sum(-1))
            obs, r, term, trunc, _ = envs.step(np.clip(action.numpy(), -1, 1).astype(np.float64))
            rewards.append(torch.as_tensor(r, dtype=torch.float32))
        adv = torch.stack(rewards)
        adv = (adv - adv.mean()) / (adv.std() + 1e-6)
        loss = -(torch.stack(logps) * adv).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if update % 5 == 0:
            log.info("update %d loss %.3f mean reward %.4f", update, loss.item(), torch.stack(rewards).mean())
    envs.close()


if __name__ == "__main__":
    main()
