import logging
import time

import numpy as np
import torch
from torch import nn

log = logging.getLogger("ppo.rollout")


class ActorCritic(nn.Module):
    def __init__(self, obs=24, actions=6, width=128):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.pi = nn.Linear(width, actions)
        self.v = nn.Linear(width, 1)

    def forward(self, obs):
        hidden = self.body(obs)
        return self.pi(hidden), self.v(hidden).squeeze(-1)


class ReacherEnv:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.state = self.rng.standard_normal(24).astype(np.float32)

    def step(self, action):
        time.sleep(0.015)
        self.state = 0.95 * self.state + 0.1 * self.rng.standard_normal(24).astype(np.float32)
        self.state[action] -= 0.1
        return self.state, -float(np.abs(self.state).mean())


def rollout_main(remote, seed, length):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    torch.set_num_threads(1)
    env, model = ReacherEnv(seed), ActorCritic()
    while True:
        weights = remote.recv()
        if weights is None:
            return
        model.load_state_dict({k: torch.from_numpy(v) for k, v in weights.items()})
        obs, actions, logps, rewards = [], [], [], []
        for _ in range(length):
            state = torch.from_numpy(env.state.copy())
            with torch.no_grad():
                dist = torch.distributions.Categorical(logits=model(state)[0])
                action = dist.sample()
            _, reward = env.step(action.item())
            obs.append(state.numpy())
            actions.append(action.item())
            logps.append(dist.log_prob(action).item())
            rewards.append(reward)
        remote.send((np.stack(obs), np.asarray(actions), np.asarray(logps, np.float32), np.asarray(rewards, np.float32)))
