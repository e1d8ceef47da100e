"""Policy-gradient learner fed by sampler processes, with training callbacks on an event bus."""
import argparse
import logging
import multiprocessing as mp
import os
import threading
import time

import torch
from torch import nn

from callbacks import BestTracker, Heartbeat, Throughput, WarmupLR
from events import EventBus

log = logging.getLogger("learner")


class Policy(nn.Module):
    def __init__(self, obs_dim, n_actions):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs_dim, 64), nn.Tanh(), nn.Linear(64, n_actions))

    def forward(self, obs):
        return torch.distributions.Categorical(logits=self.body(obs))


class PointEnv:
    """Move towards the origin in obs_dim dimensions."""

    def __init__(self, obs_dim, seed):
        self.gen = torch.Generator().manual_seed(seed)
        self.obs_dim = obs_dim

    def reset(self):
        self.state = torch.randn(self.obs_dim, generator=self.gen)
        return self.state

    def step(self, action):
        axis, sign = divmod(int(action), 2)
        before = self.state.norm()
        self.state = self.state.clone()
        self.state[axis] += 0.2 if sign else -0.2
        return self.state, float(before - self.state.norm())


def sampler(index, queue, args):
    limit = threading.Timer(args.max_seconds, os._exit, (0,))
    limit.daemon = True
    limit.start()
    torch.set_num_threads(1)
    torch.manual_seed(100 + index)
    env = PointEnv(args.obs_dim, index)
    while True:
        obs = env.reset()
        observations, actions, rewards = [], [], []
        for _ in range(args.horizon):
            action = torch.randint(0, 2 * args.obs_dim, (1,))
            observations.append(obs)
            actions.append(action)
            obs, reward = env.step(action)
            rewards.append(reward)
        queue.put((torch.stack(observations).numpy(), torch.cat(actions).numpy(), rewards))


class Learner:
    def __init__(self, args):
        self.args = args
        self.bus = EventBus()
        self.policy = Policy(args.obs_dim, 2 * args.obs_dim)
        self.opt = torch.optim.Adam(self.policy.parameters(), lr=0.0)
        ctx = mp.get_context("fork")
        self.queue = ctx.Queue(maxsize=32)
        self.samplers = [
            ctx.Process(target=sampler, args=(i, self.queue, args), name=f"sampler{i}", daemon=True)
            for i in range(args.samplers)
        ]
        Throughput(self.bus, every=20)
        BestTracker(self.bus)
        WarmupLR(self.bus, self.opt, args.lr, args.warmup_updates)
        Heartbeat(self.bus)

    def heartbeat(self):
        while True:
            time.sleep(1)
            self.bus.publish("heartbeat", alive=sum(p.is_alive() for p in self.samplers))

    def update(self):
        loss = 0.0
        for _ in range(self.args.batch):
            obs, actions, rewards = self.queue.get()
            returns = torch.tensor(rewards).flip(0).cumsum(0).flip(0)
            logp = self.policy(torch.from_numpy(obs)).log_prob(torch.from_numpy(actions))
            loss = loss - (logp * (returns - returns.mean())).mean() / self.args.batch
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()

    def run(self):
        for p in self.samplers:
            p.start()
        threading.Thread(target=self.heartbeat, name="heartbeat", daemon=True).start()
        for update in range(1, self.args.updates + 1):
            loss = self.update()
            self.bus.publish("update", update=update, loss=loss)
        log.info("training finished")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--samplers", type=int, default=3)
    p.add_argument("--obs-dim", type=int, default=6)
    p.add_argument("--horizon", type=int, default=64)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--updates", type=int, default=50_000)
    p.add_argument("--warmup-updates", type=int, default=60)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--max-seconds", type=float, default=105)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    limit = threading.Timer(args.max_seconds + 3, os._exit, (0,))
    limit.daemon = True
    limit.start()
    Learner(args).run()


if __name__ == "__main__":
    main()
