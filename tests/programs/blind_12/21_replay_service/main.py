"""Distributed DQN on a toy task: actors -> replay service -> learner."""
import argparse
import logging
import multiprocessing as mp
import time

import torch
import torch.nn as nn

from actor import actor_main
from replay import replay_main

log = logging.getLogger("learner")


class Learner:
    def __init__(self):
        self.q = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 9))
        self.target = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 9))
        self.target.load_state_dict(self.q.state_dict())
        self.opt = torch.optim.Adam(self.q.parameters(), lr=3e-4)

    def update(self, batch):
        obs, act, rew, nxt, done = (torch.from_numpy(a) for a in batch)
        with torch.no_grad():
            y = rew + 0.99 * (1 - done) * self.target(nxt).max(dim=1).values
        q = self.q(obs).gather(1, act.unsqueeze(1)).squeeze(1)
        loss = nn.functional.smooth_l1_loss(q, y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.detach()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--actors", type=int, default=2)
    parser.add_argument("--capacity", type=int, default=1_600_000)
    parser.add_argument("--warmup", type=int, default=10_000)
    parser.add_argument("--demonstrations", type=int, default=1_000_000)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--chunk", type=int, default=2000)
    parser.add_argument("--actor-rate", type=float, default=10_000)
    parser.add_argument("--updates", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    torch.set_num_threads(1)

    ctx = mp.get_context("fork")
    transitions, batches = ctx.Queue(maxsize=16), ctx.Queue(maxsize=4)
    procs = [ctx.Process(target=replay_main, args=(transitions, batches, args), name="replay", daemon=True)]
    procs += [ctx.Process(target=actor_main, args=(i, transitions, args), name=f"actor-{i}", daemon=True)
              for i in range(args.actors)]
    for p in procs:
        p.start()
    learner = Learner()
    last, count, waited = time.monotonic(), 0, 0.0
    for step in range(args.updates):
        t0 = time.monotonic()
        batch = batches.get()
        waited += time.monotonic() - t0
        loss = learner.update(batch)
        count += 1
        if step % 1000 == 0:
            learner.target.load_state_dict(learner.q.state_dict())
        if time.monotonic() - last > 5:
            dt = time.monotonic() - last
            log.info("step %d loss %.4f %.1f updates/s (%.0f%% waiting for batches)", step, loss.item(), count / dt,
                     100 * waited / dt)
            last, count, waited = time.monotonic(), 0, 0.0


if __name__ == "__main__":
    main()
