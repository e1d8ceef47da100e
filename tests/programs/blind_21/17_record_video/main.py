"""REINFORCE with a baseline on a vectorised reacher; the first environment is recorded for the dashboard."""
import argparse
import logging
import tempfile
import time
from collections import deque

import numpy as np
import torch
from torch import nn

from envs import ReacherEnv, SubprocVecEnv
from video import RecordVideo

log = logging.getLogger("reacher")


class ActorCritic(nn.Module):
    def __init__(self, obs_dim=6, act_dim=2, hidden=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs_dim, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.mean = nn.Linear(hidden, act_dim)
        self.value = nn.Linear(hidden, 1)
        self.log_std = nn.Parameter(torch.full((act_dim,), -0.5))

    def forward(self, obs):
        h = self.body(obs)
        return torch.distributions.Normal(self.mean(h), self.log_std.exp()), self.value(h).squeeze(-1)


class Rollout:
    def __init__(self, n_steps, n_envs, obs_dim=6, act_dim=2):
        self.obs = torch.zeros(n_steps, n_envs, obs_dim)
        self.actions = torch.zeros(n_steps, n_envs, act_dim)
        self.rewards = torch.zeros(n_steps, n_envs)
        self.dones = torch.zeros(n_steps, n_envs)

    def returns(self, last_value, gamma):
        out, running = torch.zeros_like(self.rewards), last_value
        for t in reversed(range(len(self.rewards))):
            running = self.rewards[t] + gamma * running * (1 - self.dones[t])
            out[t] = running
        return out


class Learner:
    def __init__(self, venv, n_envs, args):
        self.venv, self.args, self.n_envs = venv, args, n_envs
        self.policy = ActorCritic()
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=args.lr)
        self.rollout = Rollout(args.n_steps, n_envs)
        self.obs = torch.from_numpy(venv.reset())
        self.episode_return = np.zeros(n_envs)
        self.recent = deque(maxlen=50)
        self.steps = 0

    @torch.no_grad()
    def collect(self):
        for t in range(self.args.n_steps):
            dist, _ = self.policy(self.obs)
            action = dist.sample()
            obs, reward, done, _ = self.venv.step(action.numpy())
            self.rollout.obs[t], self.rollout.actions[t] = self.obs, action
            self.rollout.rewards[t] = torch.from_numpy(reward)
            self.rollout.dones[t] = torch.from_numpy(done.astype(np.float32))
            self.episode_return += reward
            for i in np.flatnonzero(done):
                self.recent.append(self.episode_return[i])
                self.episode_return[i] = 0.0
            self.obs = torch.from_numpy(obs)
            self.steps += self.n_envs
        return self.rollout.returns(self.policy(self.obs)[1], self.args.gamma)

    def update(self, returns):
        dist, values = self.policy(self.rollout.obs)
        advantage = returns - values
        log_prob = dist.log_prob(self.rollout.actions).sum(-1)
        loss = -(log_prob * advantage.detach()).mean() + 0.5 * advantage.pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.policy.parameters(), 0.5)
        self.optimizer.step()
        return loss.item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--n-envs", type=int, default=3)
    p.add_argument("--n-steps", type=int, default=64)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--gamma", type=float, default=0.97)
    p.add_argument("--minutes", type=float, default=1.9)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="reacher_videos_") as folder:
        makers = [lambda: RecordVideo(ReacherEnv(0), folder, episode_trigger=lambda e: True)]
        makers += [lambda i=i: ReacherEnv(i) for i in range(1, args.n_envs)]
        venv = SubprocVecEnv(makers)
        learner = Learner(venv, args.n_envs, args)
        started, update = time.time(), 0
        while time.time() - started < args.minutes * 60:
            loss = learner.update(learner.collect())
            update += 1
            if update % 10 == 0:
                mean = np.mean(learner.recent) if learner.recent else float("nan")
                log.info("update %d steps %d (%.0f/s) loss %.3f return %.2f", update, learner.steps,
                         learner.steps / (time.time() - started), loss, mean)
        venv.close()


if __name__ == "__main__":
    main()
