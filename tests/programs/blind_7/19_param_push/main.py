"""Asynchronous actor-learner: the learner pushes its policy, the actors push transitions."""
import argparse
import logging
import multiprocessing as mp
import time

import numpy as np
import torch
from torch import nn

from transport import bytes_to_state, state_to_bytes, try_get

log = logging.getLogger("async_rl")


def make_policy(width):
    return nn.Sequential(nn.Linear(16, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 4))


class Arm:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.state = self.rng.normal(0, 1, 16).astype(np.float32)

    def step(self, action):
        time.sleep(0.02)
        self.state = 0.95 * self.state + self.rng.normal(0, 0.05, 16).astype(np.float32)
        self.state[:4] += 0.1 * action
        return self.state.copy(), -float(np.square(self.state).sum())


def actor(idx, params, transitions, width, episode_len):
    torch.set_num_threads(1)
    policy, env = make_policy(width), Arm(idx)
    obs, version, episode = env.state.copy(), -1, 0
    while True:
        update = try_get(params)
        if update is not None:
            version, blob = update
            policy.load_state_dict(bytes_to_state(blob))
        total = 0.0
        for _ in range(episode_len):
            with torch.no_grad():
                action = policy(torch.from_numpy(obs)).numpy()
            nxt, reward = env.step(action)
            transitions.put((idx, obs, action, reward, nxt))
            obs, total = nxt, total + reward
        episode += 1
        if episode % 10 == 0:
            logging.info("actor %d episode %d return %.2f", idx, episode, total)


class Learner:
    def __init__(self, args, params, transitions):
        self.args, self.params, self.transitions = args, params, transitions
        self.policy = make_policy(args.width)
        self.value = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 1))
        self.opt_p = torch.optim.Adam(self.policy.parameters(), lr=1e-3)
        self.opt_v = torch.optim.Adam(self.value.parameters(), lr=1e-3)
        self.buffer = []

    def drain(self):
        while (item := try_get(self.transitions)) is not None:
            self.buffer.append(item)
        del self.buffer[: -self.args.buffer]

    def update(self, rng):
        rows = [self.buffer[i] for i in rng.integers(0, len(self.buffer), self.args.batch_size)]
        obs = torch.from_numpy(np.stack([r[1] for r in rows]))
        act = torch.from_numpy(np.stack([r[2] for r in rows]))
        ret = torch.tensor([r[3] for r in rows])[:, None]
        loss = nn.functional.mse_loss(self.value(torch.cat([obs, act], 1)), ret)
        self.opt_v.zero_grad()
        loss.backward()
        self.opt_v.step()
        gain = self.value(torch.cat([obs, self.policy(obs)], 1)).mean()
        self.opt_p.zero_grad()
        (-gain).backward()
        self.opt_p.step()
        return loss.item()

    def push(self, version):
        blob = state_to_bytes(self.policy.state_dict())
        for q in self.params:
            q.put((version, blob))

    def run(self):
        rng = np.random.default_rng(0)
        t_push, version, t0 = 0.0, 0, time.time()
        for step in range(self.args.steps):
            self.drain()
            while len(self.buffer) < self.args.batch_size:
                time.sleep(0.05)
                self.drain()
            loss = self.update(rng)
            if time.time() - t_push > self.args.push_every:
                version += 1
                self.push(version)
                t_push = time.time()
            if step % 100 == 0:
                log.info("step %d loss %.3f policy version %d (%.0f s)", step, loss, version, time.time() - t0)
            time.sleep(self.args.pause)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--actors", type=int, default=2)
    p.add_argument("--width", type=int, default=420)
    p.add_argument("--episode-len", type=int, default=60)
    p.add_argument("--batch-size", type=int, default=128)
    p.add_argument("--buffer", type=int, default=5000)
    p.add_argument("--push-every", type=float, default=0.1)
    p.add_argument("--pause", type=float, default=0.02)
    p.add_argument("--steps", type=int, default=100_000)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    torch.set_num_threads(1)

    transitions = mp.Queue()
    params = [mp.Queue() for _ in range(args.actors)]
    for i in range(args.actors):
        mp.Process(target=actor, args=(i, params[i], transitions, args.width, args.episode_len),
                   name=f"actor-{i}", daemon=True).start()
    Learner(args, params, transitions).run()


if __name__ == "__main__":
    main()
