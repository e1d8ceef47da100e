"""Learner with remote actors: weights go out by one queue per actor, transitions come back."""
import argparse
import collections
import logging
import multiprocessing as mp
import queue
import random
import time

import numpy as np
import torch
from torch import nn

from optim import MomentumSgd
from actor import Actor

log = logging.getLogger("learner")


def run_actor(index, parameters, transitions, seed):
    Actor(index, parameters, transitions, seed).run()


class Learner:
    def __init__(self, args, ctx):
        self.args = args
        self.policy = nn.Sequential(nn.Linear(64, args.hidden), nn.ReLU(), nn.Linear(args.hidden, 4))
        self.opt = MomentumSgd(self.policy.parameters(), lr=1e-4)
        self.replay = collections.deque(maxlen=4000)
        self.transitions = ctx.Queue(maxsize=64)
        self.feeds = [ctx.Queue() for _ in range(args.actors)]

    def push_weights(self):
        weights = {k: v.numpy().copy() for k, v in self.policy.state_dict().items()}
        for feed in self.feeds:
            feed.put(weights)

    def drain(self):
        while True:
            try:
                self.replay.extend(self.transitions.get_nowait())
            except queue.Empty:
                return

    def update(self):
        batch = random.sample(self.replay, min(64, len(self.replay)))
        obs = torch.from_numpy(np.stack([b[0] for b in batch]))
        act = torch.from_numpy(np.stack([b[1] for b in batch]))
        rew = torch.tensor([b[2] for b in batch])
        loss = (((self.policy(obs).tanh() - act) ** 2).mean(1) * torch.softmax(rew, 0)).sum()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()

    def run(self):
        step, last_push = 0, 0.0
        while True:
            self.drain()
            if not self.replay:
                time.sleep(0.1)
                continue
            loss = self.update()
            step += 1
            now = time.monotonic()
            if now - last_push > self.args.push_interval:
                self.push_weights()
                last_push = now
            if step % 50 == 0:
                log.info("step %d loss %.4f replay %d", step, loss, len(self.replay))
            time.sleep(0.02)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--actors", type=int, default=2)
    ap.add_argument("--hidden", type=int, default=4096)
    ap.add_argument("--push-interval", type=float, default=0.25)
    a = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    ctx = mp.get_context("fork")
    learner = Learner(a, ctx)
    for i in range(a.actors):
        ctx.Process(target=run_actor, args=(i, learner.feeds[i], learner.transitions, i), name=f"actor-{i}",
                    daemon=True).start()
    learner.run()
