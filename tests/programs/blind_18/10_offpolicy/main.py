"""Off-policy Q-learning with an ensemble: actors, a replay server and a learner."""
import argparse
import copy
import logging
import multiprocessing as mp
import signal
import time

import numpy as np
import torch
from torch import nn

from replay import replay_server

log = logging.getLogger("learner")


class PointEnv:
    """Vectorised toy control task with four discrete actions."""

    def __init__(self, n, obs_dim, seed):
        self.rng = np.random.default_rng(seed)
        self.state = self.rng.standard_normal((n, obs_dim), dtype=np.float32)

    def step(self, action):
        obs = self.state
        reward = obs[:, 0] * (action - 1.5).astype(np.float32)
        noise = self.rng.standard_normal(obs.shape, dtype=np.float32)
        self.state = 0.9 * obs + 0.3 * noise
        return obs, action, reward, self.state


def actor(rank, args, conn):
    signal.alarm(args.walltime)
    env = PointEnv(32, args.obs_dim, args.seed + rank)
    rng = np.random.default_rng(900 + rank)
    while True:
        conn.send(env.step(rng.integers(0, 4, 32)))
        time.sleep(0.25)


def q_network(obs_dim):
    return nn.Sequential(nn.Linear(obs_dim, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))


class Learner:
    def __init__(self, args, replay):
        self.args = args
        self.replay = replay
        self.nets = [q_network(args.obs_dim) for _ in range(args.ensemble)]
        self.targets = [copy.deepcopy(net) for net in self.nets]
        self.opts = [torch.optim.Adam(net.parameters(), lr=3e-4) for net in self.nets]

    def batch(self):
        self.replay.send(self.args.batch_size)
        return [torch.from_numpy(a) for a in self.replay.recv()]

    def update(self, net, target, opt):
        obs, action, reward, next_obs = self.batch()
        with torch.no_grad():
            goal = reward + self.args.gamma * target(next_obs).max(1).values
        value = net(obs).gather(1, action[:, None]).squeeze(1)
        loss = nn.functional.smooth_l1_loss(value, goal)
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            for p, q in zip(target.parameters(), net.parameters()):
                p.lerp_(q, 0.005)
        return loss.item()

    def run(self):
        end = time.monotonic() + self.args.duration
        mark, done, step = time.monotonic(), 0, 0
        while time.monotonic() < end:
            losses = [self.update(*parts) for parts in zip(self.nets, self.targets, self.opts)]
            step += 1
            now = time.monotonic()
            if now - mark >= 5:
                log.info("step %d loss %.4f, %.1f steps/s", step, float(np.mean(losses)), (step - done) / (now - mark))
                mark, done = now, step


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--capacity", type=int, default=5_000_000)
    p.add_argument("--offline", type=int, default=4_500_000)
    p.add_argument("--obs-dim", type=int, default=6)
    p.add_argument("--batch-size", type=int, default=128)
    p.add_argument("--ensemble", type=int, default=4)
    p.add_argument("--actors", type=int, default=2)
    p.add_argument("--gamma", type=float, default=0.97)
    p.add_argument("--duration", type=float, default=115)
    p.add_argument("--walltime", type=int, default=140)
    p.add_argument("--seed", type=int, default=0)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    signal.alarm(args.walltime)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    ctx = mp.get_context("fork")
    learner_side, server_side = ctx.Pipe()
    pipes = [ctx.Pipe(duplex=False) for _ in range(args.actors)]
    processes = [ctx.Process(target=replay_server, name="replay", daemon=True,
                             args=(args.capacity, args.obs_dim, args.offline, args.seed, server_side,
                                   [r for r, _ in pipes], args.walltime))]
    processes += [ctx.Process(target=actor, args=(i, args, s), name=f"actor-{i}", daemon=True)
                  for i, (_, s) in enumerate(pipes)]
    for proc in processes:
        proc.start()
    Learner(args, learner_side).run()
    for proc in processes:
        proc.terminate()
        proc.join()


if __name__ == "__main__":
    main()
