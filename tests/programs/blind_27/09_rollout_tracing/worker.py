import logging
import math
import random

import torch
import torch.nn as nn

from tracing import Tracer

log = logging.getLogger("worker")


class Policy(nn.Module):
    def __init__(self, obs_dim=3, hidden=64, actions=3):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs_dim, hidden), nn.Tanh(), nn.Linear(hidden, actions))

    @torch.no_grad()
    def act(self, obs):
        return self.body(obs).argmax(dim=-1).tolist()


class CartEnv:
    """A cart on a rail; an episode is at most 120 steps long."""

    def __init__(self, rng, horizon=120):
        self.rng = rng
        self.horizon = horizon

    def reset(self):
        self.t = 0
        self.pos = self.rng.uniform(-1.0, 1.0)
        self.vel = 0.0
        return self.pos, self.vel, math.cos(self.pos)

    def step(self, action):
        self.t += 1
        self.vel = 0.98 * self.vel + 0.1 * (action - 1) + self.rng.gauss(0.0, 0.05)
        self.pos += 0.05 * self.vel
        reward = 1.0 - abs(self.pos)
        done = self.t >= self.horizon or abs(self.pos) > 2.0
        return (self.pos, self.vel, math.cos(self.pos)), reward, done


class EpisodeRunner:
    """Plays a batch of episodes side by side, one forward pass for all of them."""

    def __init__(self, seed, tracer):
        self.rng = random.Random(seed)
        self.policy = Policy()
        self.tracer = tracer

    def play(self, episodes):
        envs = [CartEnv(self.rng) for _ in range(episodes)]
        obs = [env.reset() for env in envs]
        scores = [0.0] * episodes
        active = set(range(episodes))
        while active:
            with self.tracer.span("policy.act") as span:
                actions = self.policy.act(torch.tensor(obs))
                span.set("batch", len(active))
            for i in sorted(active):
                turn = self.tracer.span("turn")
                turn.set("env", i)
                sim = turn.child("env.step")
                obs[i], reward, done = envs[i].step(actions[i])
                scores[i] += reward
                sim.set("reward", reward)
                sim.finish()
                if done:
                    active.discard(i)
        return scores


def run_worker(idx, conn, events, seed):
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    tracer = Tracer(f"worker-{idx}", events)
    runner = EpisodeRunner(seed, tracer)
    while True:
        cmd, number, episodes = conn.recv()
        if cmd == "stop":
            break
        conn.send(runner.play(episodes))
    tracer.flush()
