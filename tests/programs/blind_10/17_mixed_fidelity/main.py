"""A2C on three coarse simulators and one fine reference simulator, stepped together."""
import argparse
import logging
import time

import torch
from torch import nn

from vec_env import ProcessVecEnv

log = logging.getLogger("a2c")


class Agent:
    def __init__(self, lr, gamma=0.9):
        self.body = nn.Sequential(nn.Linear(4, 32), nn.Tanh())
        self.pi, self.v = nn.Linear(32, 2), nn.Linear(32, 1)
        self.params = [*self.body.parameters(), *self.pi.parameters(), *self.v.parameters()]
        self.lr = lr
        self.gamma = gamma

    def act(self, obs):
        with torch.no_grad():
            return torch.distributions.Categorical(logits=self.pi(self.body(torch.from_numpy(obs)))).sample()

    def update(self, batch):
        obs, actions, rewards = (torch.stack(part) for part in zip(*batch))
        returns, running = [], torch.zeros(rewards.shape[1])
        for r in reversed(rewards):
            running = r + self.gamma * running
            returns.insert(0, running)
        returns = torch.stack(returns)
        hidden = self.body(obs)
        value = self.v(hidden).squeeze(-1)
        logp = torch.distributions.Categorical(logits=self.pi(hidden)).log_prob(actions)
        loss = -(logp * (returns - value).detach()).mean() + 0.5 * (returns - value).pow(2).mean()
        grads = torch.autograd.grad(loss, self.params)
        with torch.no_grad():
            for p, g in zip(self.params, grads):
                p.sub_(g, alpha=self.lr)
        return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--substeps", type=int, nargs="+", default=[4, 4, 4, 20])
    parser.add_argument("--horizon", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=125)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    env, agent = ProcessVecEnv(args.substeps), Agent(lr=3e-3)
    obs, steps = env.reset(), 0
    deadline = time.monotonic() + args.seconds
    while time.monotonic() < deadline:
        batch, started = [], time.monotonic()
        for _ in range(args.horizon):
            actions = agent.act(obs)
            following, rewards, _ = env.step(actions)
            batch.append((torch.from_numpy(obs), actions, torch.from_numpy(rewards)))
            obs = following
        steps += args.horizon * len(args.substeps)
        loss = agent.update(batch)
        log.info("%d steps, loss %.3f, %.0f ms per joint step", steps, loss,
                 1000 * (time.monotonic() - started) / args.horizon)
    env.close()


if __name__ == "__main__":
    main()
