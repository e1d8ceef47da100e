"""Actor-critic on a rendered point mass; rollouts overlap with the update."""
import argparse
import logging
import time

import torch
from torch import nn

from optim import MomentumSgd
from vec_env import VecRollout

log = logging.getLogger("train")


class ActorCritic(nn.Module):
    def __init__(self, obs_dim, hidden):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(obs_dim, hidden), nn.ReLU(), nn.Linear(hidden, 2))
        self.critic = nn.Sequential(nn.Linear(obs_dim, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def export_actor(self):
        return [(m.weight.detach().numpy().copy(), m.bias.detach().numpy().copy())
                for m in self.actor if isinstance(m, nn.Linear)]


class Trainer:
    def __init__(self, args):
        self.args = args
        self.envs = VecRollout(args.num_envs, args.seed)
        self.model = ActorCritic(48 * 48, args.hidden)
        self.opt = MomentumSgd(self.model.parameters(), lr=3e-4)

    def update(self, frames, actions, rewards):
        x = torch.from_numpy(frames).flatten(1)
        a = torch.from_numpy(actions).float()
        r = torch.from_numpy(rewards)
        value = self.model.critic(x).squeeze(1)
        adv = (r - value).detach()
        logp = -(self.model.actor(x).tanh() - a).square().sum(1)
        loss = -(adv * logp).mean() + 0.5 * (r - value).square().mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item(), r.mean().item()

    def run(self):
        self.envs.request(self.args.steps)
        for it in range(1, self.args.iterations + 1):
            t0 = time.monotonic()
            batch = self.envs.collect()
            self.envs.request(self.args.steps)
            loss, ret = self.update(*batch)
            if it % self.args.sync_every == 0:
                self.envs.load_policy(self.model.export_actor())
                log.info("iteration %d: actors now run policy of iteration %d", it, it)
            log.info("iteration %d loss %.4f reward %.3f (%.2fs)", it, loss, ret, time.monotonic() - t0)
        self.envs.close()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--num-envs", type=int, default=3)
    ap.add_argument("--steps", type=int, default=64)
    ap.add_argument("--hidden", type=int, default=96)
    ap.add_argument("--iterations", type=int, default=100000)
    ap.add_argument("--sync-every", type=int, default=12)
    ap.add_argument("--seed", type=int, default=1)
    torch.set_num_threads(1)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    Trainer(ap.parse_args()).run()
