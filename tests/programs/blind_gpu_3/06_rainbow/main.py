"""Rainbow-style agent: CPU actors feed a GPU learner with prioritised replay."""
import argparse
import logging
import os
import queue
import threading
import time

import numpy as np
import torch
import torch.multiprocessing as mp
import torch.nn as nn

from memory import ReplayMemory

log = logging.getLogger("rainbow")


class DuelingNet(nn.Module):
    def __init__(self, obs_dim, actions, hidden=512):
        super().__init__()
        self.torso = nn.Sequential(nn.Linear(obs_dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.value = nn.Linear(hidden, 1)
        self.advantage = nn.Linear(hidden, actions)

    def forward(self, x):
        h = self.torso(x)
        adv = self.advantage(h)
        return self.value(h) + adv - adv.mean(-1, keepdim=True)


class DriftEnv:
    """Keep a drifting point near the origin."""

    def __init__(self, obs_dim, actions, seed):
        self.rng = np.random.default_rng(seed)
        self.push = self.rng.normal(size=(actions, obs_dim)).astype(np.float32) * 0.1
        self.obs_dim = obs_dim
        self.state = self.rng.normal(size=obs_dim).astype(np.float32)

    def step(self, action):
        noise = self.rng.normal(size=self.obs_dim).astype(np.float32) * 0.02
        self.state = np.clip(0.98 * self.state + self.push[action] + noise, -5, 5)
        return self.state.copy(), -float(np.abs(self.state).mean())


def actor_loop(actor_id, args, policy, out):
    torch.set_num_threads(1)
    limit_walltime(args.time_limit)
    env = DriftEnv(args.obs_dim, args.actions, args.seed + actor_id)
    rng = np.random.default_rng(100 + actor_id)
    obs = env.state.copy()
    while True:
        if rng.random() < args.epsilon:
            action = int(rng.integers(args.actions))
        else:
            with torch.no_grad():
                action = int(policy(torch.from_numpy(obs)[None]).argmax(1))
        next_obs, reward = env.step(action)
        out.put((obs, action, reward, next_obs))
        obs = next_obs
        time.sleep(args.frame_time)


class Learner:
    def __init__(self, args, shared_policy, incoming, device):
        self.args, self.incoming, self.device = args, incoming, device
        self.shared_policy = shared_policy
        self.online = DuelingNet(args.obs_dim, args.actions).to(device)
        self.target = DuelingNet(args.obs_dim, args.actions).to(device)
        self.target.load_state_dict(self.online.state_dict())
        self.optim = torch.optim.Adam(self.online.parameters(), lr=args.lr)
        self.memory = ReplayMemory(args.capacity, args.obs_dim, device)
        self.frames = 0

    def drain(self, limit):
        for _ in range(limit):
            try:
                self.memory.append(*self.incoming.get_nowait())
            except queue.Empty:
                return
            self.frames += 1

    def learn(self):
        nodes, obs, act, rew, next_obs, weights = self.memory.sample(self.args.batch)
        q = self.online(obs).gather(1, act[:, None]).squeeze(1)
        with torch.no_grad():
            best = self.online(next_obs).argmax(1, keepdim=True)
            target = rew + self.args.gamma * self.target(next_obs).gather(1, best).squeeze(1)
        loss = nn.functional.smooth_l1_loss(q, target, reduction="none")
        self.optim.zero_grad(set_to_none=True)
        (weights * loss).mean().backward()
        nn.utils.clip_grad_norm_(self.online.parameters(), 10.0)
        self.optim.step()
        self.memory.update_priorities(nodes, loss.detach())
        return loss

    def run(self):
        while self.memory.length < self.args.warmup:
            self.drain(64)
            time.sleep(0.01)
        log.info("warm-up done with %d frames, learning", self.frames)
        tick, last = time.time(), 0
        for update in range(1, self.args.updates + 1):
            self.drain(self.args.drain)
            loss = self.learn()
            if update % self.args.sync_every == 0:
                self.target.load_state_dict(self.online.state_dict())
                self.shared_policy.load_state_dict(self.online.state_dict())
            if time.time() - tick > 5:
                log.info("update %d (%.1f/s) frames %d loss %.4f", update,
                         (update - last) / (time.time() - tick), self.frames, loss.mean().item())
                tick, last = time.time(), update


def limit_walltime(seconds):
    timer = threading.Timer(seconds, lambda: os._exit(0))
    timer.daemon = True
    timer.start()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--actors", type=int, default=2)
    p.add_argument("--obs-dim", type=int, default=64)
    p.add_argument("--actions", type=int, default=8)
    p.add_argument("--capacity", type=int, default=2 ** 18)
    p.add_argument("--warmup", type=int, default=200)
    p.add_argument("--batch", type=int, default=128)
    p.add_argument("--drain", type=int, default=16)
    p.add_argument("--epsilon", type=float, default=0.1)
    p.add_argument("--gamma", type=float, default=0.99)
    p.add_argument("--lr", type=float, default=1e-4)
    p.add_argument("--frame-time", type=float, default=0.01)
    p.add_argument("--sync-every", type=int, default=100)
    p.add_argument("--updates", type=int, default=10 ** 7)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--time-limit", type=float, default=120)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    ctx = mp.get_context("spawn")
    shared_policy = DuelingNet(args.obs_dim, args.actions).share_memory()
    incoming = ctx.Queue(maxsize=2000)
    actors = [ctx.Process(target=actor_loop, args=(i, args, shared_policy, incoming), daemon=True)
              for i in range(args.actors)]
    for a in actors:
        a.start()
    limit_walltime(args.time_limit)
    Learner(args, shared_policy, incoming, device).run()


if __name__ == "__main__":
    main()
