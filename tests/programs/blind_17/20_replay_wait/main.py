"""World model training on PuckArena: actors fill a replay, the learner trains from it."""
import argparse
import logging
import multiprocessing as mp
import queue
import threading
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from envs import PuckArena
from replay import Replay


class WorldModel(nn.Module):
    def __init__(self, size, actions=5, dim=64):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(3, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 4, 2, 1), nn.ReLU(),
                                 nn.Flatten(), nn.Linear(32 * (size // 4) ** 2, dim))
        self.act = nn.Embedding(actions, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.reward = nn.Linear(dim, 1)

    def forward(self, image, action):
        b, t = action.shape
        z = torch.tanh(self.enc(image.flatten(0, 1)).view(b, t, -1) + self.act(action))
        h, _ = self.rnn(z)
        return self.reward(h).squeeze(-1), z, h


def run_actor(idx, args, chunks, stop):
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    log = logging.getLogger(f"actor{idx}")
    env = PuckArena(seed=idx, size=args.size)
    rng = np.random.default_rng(100 + idx)
    images, actions, rewards = [], [], []
    obs, episodes = env.reset(), 0
    while not stop.is_set():
        action = int(rng.integers(5))
        images.append(obs)
        obs, reward, done = env.step(action)
        actions.append(action)
        rewards.append(reward)
        if len(images) == args.length:
            chunks.put((np.stack(images), np.array(actions), np.array(rewards, np.float32)))
            images, actions, rewards = [], [], []
        if done:
            episodes += 1
            if episodes % 10 == 0:
                log.info("episode %d ended", episodes)
            obs = env.reset()


def receive(chunks, replay, stop):
    while not stop.is_set():
        try:
            replay.insert(chunks.get(timeout=0.5))
        except queue.Empty:
            pass


def learn(args, replay, deadline):
    log = logging.getLogger("learner")
    torch.manual_seed(0)
    model = WorldModel(args.size)
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    log.info("start training loop, %.2fM parameters", sum(p.numel() for p in model.parameters()) / 1e6)
    step, last = 0, time.monotonic()
    while time.monotonic() < deadline:
        image, action, reward = replay.sample(args.batch)
        image = torch.from_numpy(image).permute(0, 1, 4, 2, 3).float() / 255
        pred, z, h = model(image, torch.from_numpy(action))
        loss = F.mse_loss(pred, torch.from_numpy(reward)) + F.mse_loss(h[:, :-1], z[:, 1:].detach())
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
        if time.monotonic() - last > 5:
            last = time.monotonic()
            log.info("step %d loss %.4f replay %d chunks", step, loss.item(), len(replay))
    log.info("stop after %d steps", step)


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--actors", type=int, default=3)
    p.add_argument("--size", type=int, default=24)
    p.add_argument("--length", type=int, default=16)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--capacity", type=int, default=4000)
    p.add_argument("--min-size", type=int, default=850)
    p.add_argument("--seconds", type=float, default=130.0)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    ctx = mp.get_context("spawn")
    chunks, stop = ctx.Queue(maxsize=64), ctx.Event()
    actors = [ctx.Process(target=run_actor, args=(i, args, chunks, stop), name=f"actor{i}", daemon=True)
              for i in range(args.actors)]
    for a in actors:
        a.start()
    replay = Replay(args.capacity, args.min_size, args.length, (args.size, args.size, 3))
    threading.Thread(target=receive, args=(chunks, replay, stop), name="receiver", daemon=True).start()
    learn(args, replay, time.monotonic() + args.seconds)
    stop.set()
    for a in actors:
        a.join(5)


if __name__ == "__main__":
    main()
