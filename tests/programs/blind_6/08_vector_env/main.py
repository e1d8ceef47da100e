"""A2C on a vector of pendulums."""
import argparse
import logging
import time

import numpy as np
import torch
from torch import nn

from envs import PendulumLite
from vector_env import SubprocVectorEnv

log = logging.getLogger("a2c")


class ActorCritic(nn.Module):
    def __init__(self, obs=3, actions=3):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs, 64), nn.Tanh())
        self.pi, self.v = nn.Linear(64, actions), nn.Linear(64, 1)

    def forward(self, x):
        h = self.body(x)
        return torch.distributions.Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)


def collect(venv, net, obs, steps):
    batch, lengths = [], []
    for _ in range(steps):
        dist, value = net(torch.from_numpy(obs))
        action = dist.sample()
        nxt, reward, done, info = venv.step(action.numpy())
        batch.append((dist.log_prob(action), value, torch.from_numpy(reward), torch.from_numpy(done)))
        lengths += [i["episode"]["l"] for i, d in zip(info, done) if d]
        obs = nxt
        time.sleep(0.005)
    return obs, batch, lengths


def update(net, opt, obs, batch, gamma=0.97):
    with torch.no_grad():
        ret = net(torch.from_numpy(obs))[1]
    loss = 0.0
    for logp, value, reward, done in reversed(batch):
        ret = reward + gamma * ret * (~done).float()
        adv = ret - value
        loss = loss + (-(logp * adv.detach()) + 0.5 * adv.pow(2)).mean()
    opt.zero_grad()
    (loss / len(batch)).backward()
    opt.step()
    return loss.item() / len(batch)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--envs", type=int, default=4)
    ap.add_argument("--updates", type=int, default=2000)
    ap.add_argument("--horizon", type=int, default=20)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    venv = SubprocVectorEnv([lambda s=s: PendulumLite(s) for s in range(args.envs)])
    net = ActorCritic()
    opt = torch.optim.Adam(net.parameters(), 7e-4)
    obs, history = venv.reset(), []
    for step in range(args.updates):
        obs, batch, lengths = collect(venv, net, obs, args.horizon)
        history += lengths
        loss = update(net, opt, obs, batch)
        log.info("update %d loss %.3f mean length %.1f", step, loss, np.mean(history) if history else 0)
    venv.close()


if __name__ == "__main__":
    main()
