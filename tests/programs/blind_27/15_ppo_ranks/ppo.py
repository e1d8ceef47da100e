import logging

import torch
import torch.distributed as dist
import torch.nn as nn

from env import TargetEnv

log = logging.getLogger("ppo")


class ActorCritic(nn.Module):
    def __init__(self, obs_dim, act_dim, hidden=64):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(obs_dim, hidden), nn.Tanh(), nn.Linear(hidden, act_dim))
        self.v = nn.Sequential(nn.Linear(obs_dim, hidden), nn.Tanh(), nn.Linear(hidden, 1))
        self.log_std = nn.Parameter(torch.full((act_dim,), -0.5))

    def dist(self, obs):
        return torch.distributions.Normal(self.pi(obs), self.log_std.exp())


class FlatAdam:
    """Adam on the concatenated parameters."""

    def __init__(self, params, lr, betas=(0.9, 0.999), eps=1e-8):
        self.params = list(params)
        self.lr, self.betas, self.eps = lr, betas, eps
        size = sum(p.numel() for p in self.params)
        self.m, self.v, self.t = torch.zeros(size), torch.zeros(size), 0

    @torch.no_grad()
    def step(self, grad):
        self.t += 1
        b1, b2 = self.betas
        self.m.mul_(b1).add_(grad, alpha=1 - b1)
        self.v.mul_(b2).addcmul_(grad, grad, value=1 - b2)
        delta = self.m / (1 - b1 ** self.t) / ((self.v / (1 - b2 ** self.t)).sqrt() + self.eps)
        offset = 0
        for p in self.params:
            p.sub_(self.lr * delta[offset:offset + p.numel()].view_as(p))
            offset += p.numel()


class PPO:
    def __init__(self, args, rank, stats_group):
        self.args = args
        self.rank = rank
        self.world = dist.get_world_size()
        self.stats_group = stats_group
        self.env = TargetEnv(args.envs, seed=args.seed + 1000 * rank)
        self.net = ActorCritic(self.env.obs_dim, self.env.act_dim)
        for p in self.net.parameters():
            dist.broadcast(p.data, src=0)
        self.opt = FlatAdam(self.net.parameters(), lr=args.lr)
        self.gen = torch.Generator().manual_seed(args.seed + rank)
        self.obs = self.env.reset()

    @torch.no_grad()
    def collect(self):
        obs, acts, logps, rewards, values = [], [], [], [], []
        for _ in range(self.args.horizon):
            pi = self.net.dist(self.obs)
            act = pi.mean + pi.stddev * torch.randn(pi.mean.shape, generator=self.gen)
            obs.append(self.obs)
            acts.append(act)
            logps.append(pi.log_prob(act).sum(-1))
            values.append(self.net.v(self.obs).squeeze(-1))
            self.obs, reward = self.env.step(act)
            rewards.append(reward)
        rewards = torch.stack(rewards)
        returns = torch.zeros_like(rewards)
        running = self.net.v(self.obs).squeeze(-1)
        for t in reversed(range(len(rewards))):
            running = rewards[t] + 0.97 * running
            returns[t] = running
        adv = returns - torch.stack(values)
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        return {"obs": torch.cat(obs), "act": torch.cat(acts), "logp": torch.cat(logps),
                "ret": returns.flatten(), "adv": adv.flatten(), "reward": rewards.mean().item()}

    def average_gradients(self, loss):
        grads = torch.autograd.grad(loss, self.opt.params)
        flat = torch.cat([g.flatten() for g in grads])
        dist.all_reduce(flat)
        return flat / self.world

    def update(self, batch):
        kl, epochs = 0.0, 0
        for epoch in range(self.args.epochs):
            pi = self.net.dist(batch["obs"])
            logp = pi.log_prob(batch["act"]).sum(-1)
            ratio = (logp - batch["logp"]).exp()
            kl = ((ratio - 1) - (logp - batch["logp"])).mean().item()
            if self.args.early_stopping and kl > 1.5 * self.args.target_kl:
                log.debug("early stopping at epoch %d, kl %.4f", epoch, kl)
                break
            clipped = ratio.clamp(1 - self.args.clip, 1 + self.args.clip)
            policy_loss = -torch.min(ratio * batch["adv"], clipped * batch["adv"]).mean()
            value_loss = (self.net.v(batch["obs"]).squeeze(-1) - batch["ret"]).pow(2).mean()
            loss = policy_loss + 0.5 * value_loss - 0.001 * pi.entropy().sum(-1).mean()
            self.opt.step(self.average_gradients(loss))
            epochs += 1
        return {"return": batch["reward"], "kl": kl, "epochs": float(epochs)}

    def reduce_stats(self, stats):
        values = torch.tensor(list(stats.values()))
        dist.all_reduce(values, group=self.stats_group)
        return dict(zip(stats, (values / self.world).tolist()))
