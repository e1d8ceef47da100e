import argparse
import logging
import sys
import time

import torch
import torch.nn as nn

from env import SubprocVectorEnv


class ActorCritic(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.pi = nn.Linear(hidden, 2)
        self.v = nn.Linear(hidden, 1)

    def forward(self, obs):
        h = self.body(obs)
        return torch.distributions.Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)


class Collector:
    """Plays whole episodes, as many as asked for."""

    def __init__(self, policy, envs, num_envs):
        self.policy, self.envs, self.num_envs = policy, envs, num_envs

    @torch.no_grad()
    def collect(self, n_episode):
        episodes = []
        live = list(range(min(self.num_envs, n_episode)))
        started = len(live)
        obs = dict(zip(live, self.envs.reset(live)))
        trace = {i: [] for i in live}
        while live:
            batch = torch.tensor([obs[i] for i in live])
            dist, _ = self.policy(batch)
            actions = dist.sample().tolist()
            results = self.envs.step(live, actions)
            still = []
            for i, a, (nxt, rew, done) in zip(live, actions, results):
                trace[i].append((obs[i], a, rew))
                obs[i] = nxt
                if not done:
                    still.append(i)
                    continue
                episodes.append(trace[i])
                if started < n_episode:
                    started += 1
                    obs[i] = self.envs.reset([i])[0]
                    trace[i] = []
                    still.append(i)
            live = still
        return episodes


class A2C:
    def __init__(self, policy, lr, gamma, ent_coef=0.005):
        self.policy, self.gamma, self.ent_coef = policy, gamma, ent_coef
        self.opt = torch.optim.Adam(policy.parameters(), lr=lr)

    def returns(self, episode):
        out, acc = [], 0.0
        for _, _, r in reversed(episode):
            acc = r + self.gamma * acc
            out.append(acc)
        return out[::-1]

    def update(self, episodes):
        obs = torch.tensor([o for ep in episodes for o, _, _ in ep])
        act = torch.tensor([a for ep in episodes for _, a, _ in ep])
        ret = torch.tensor([g for ep in episodes for g in self.returns(ep)]) / 100.0
        dist, value = self.policy(obs)
        adv = ret - value.detach()
        adv = (adv - adv.mean()) / (adv.std() + 1e-6)
        loss = -(dist.log_prob(act) * adv).mean() + 0.5 * (ret - value).pow(2).mean() \
            - self.ent_coef * dist.entropy().mean()
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.policy.parameters(), 0.5)
        self.opt.step()
        return loss.item()


def parse_args():
    p = argparse.ArgumentParser("a2c")
    p.add_argument("--num-envs", type=int, default=4)
    p.add_argument("--episode-per-collect", type=int, default=8)
    p.add_argument("--collect-per-epoch", type=int, default=4)
    p.add_argument("--lr", type=float, default=1.5e-3)
    p.add_argument("--gamma", type=float, default=0.99)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--max-seconds", type=float, default=130.0)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(asctime)s %(message)s")
    log = logging.getLogger("a2c")
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    envs = SubprocVectorEnv(args.num_envs, args.seed)
    policy = ActorCritic()
    collector = Collector(policy, envs, args.num_envs)
    algo = A2C(policy, args.lr, args.gamma)
    started, epoch = time.time(), 0
    while time.time() - started < args.max_seconds:
        epoch += 1
        t0, loss, steps, count = time.time(), 0.0, 0, 0
        for _ in range(args.collect_per_epoch):
            episodes = collector.collect(args.episode_per_collect)
            loss = algo.update(episodes)
            steps += sum(len(e) for e in episodes)
            count += len(episodes)
            if time.time() - started > args.max_seconds:
                break
        log.info("Epoch #%d: %.2fs, loss %.3f, episodes %d, reward %.1f, env steps %d", epoch,
                 time.time() - t0, loss, count, steps / count, steps)
    envs.close()


if __name__ == "__main__":
    main()
