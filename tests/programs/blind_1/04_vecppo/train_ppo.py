import argparse
import logging

import torch
from torch import nn
from torch.distributions import Categorical

from vec_env import MultiprocessVectorEnv

log = logging.getLogger("ppo")


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 64), nn.Tanh())
        self.pi, self.v = nn.Linear(64, 3), nn.Linear(64, 1)

    def forward(self, x):
        h = self.body(x)
        return Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--envs", type=int, default=4)
    ap.add_argument("--rollout", type=int, default=32)
    ap.add_argument("--updates", type=int, default=400)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(1)

    venv = MultiprocessVectorEnv(args.envs)
    net = ActorCritic()
    opt = torch.optim.Adam(net.parameters(), lr=3e-4)
    obs = venv.reset()
    for upd in range(args.updates):
        logps, vals, rews = [], [], []
        for _ in range(args.rollout):
            d, v = net(torch.tensor(obs).clamp(-10, 10))
            a = d.sample()
            obs, r, _ = venv.step(a.tolist())
            logps.append(d.log_prob(a))
            vals.append(v)
            rews.append(torch.tensor(r))
        R, loss = torch.zeros(args.envs), 0.0
        for lp, v, r in zip(reversed(logps), reversed(vals), reversed(rews)):
            R = r + 0.99 * R
            loss = loss - (lp * (R - v).detach()).mean() + 0.5 * (R - v).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        log.info("update %d return %.3f", upd, R.mean().item())


if __name__ == "__main__":
    main()
