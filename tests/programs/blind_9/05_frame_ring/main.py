"""Asynchronous actors with a central learner (V-trace left out)."""
import argparse
import collections
import logging
import multiprocessing as mp
import time

import torch
from torch import nn

from optim import MomentumSgd
from actor import run_actor
from ring import FrameRing

log = logging.getLogger("learner")


class Learner:
    def __init__(self, args, ring, policy):
        self.args, self.ring, self.policy = args, ring, policy
        self.value = nn.Sequential(nn.Linear(args.obs_dim, 64), nn.Tanh(), nn.Linear(64, 1))
        self.opt = MomentumSgd([*self.value.parameters(), *policy.parameters()], lr=1e-3)
        self.skipped = collections.Counter()

    def next_batch(self):
        obs, reward = [], []
        while len(obs) < self.args.batch_size:
            actor_id, slot = self.ring.full.get()
            if not self.ring.valid[slot]:
                self.skipped[actor_id] += 1
                continue
            obs.append(self.ring.obs[slot].clone())
            reward.append(self.ring.reward[slot].clone())
            self.ring.free.put(slot)
        return torch.stack(obs), torch.stack(reward)

    def step(self):
        obs, reward = self.next_batch()
        value = self.value(obs).squeeze(-1)
        ret = reward.flip(1).cumsum(1).flip(1)
        loss = (ret - value).square().mean() - 1e-3 * self.policy(obs).square().mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()

    def run(self):
        t0, n = time.monotonic(), 0
        while True:
            loss = self.step()
            n += 1
            if n % 10 == 0:
                log.info("update %d loss %.3f, %.1f updates/s, skipped for lost frames: %s",
                         n, loss, n / (time.monotonic() - t0), dict(self.skipped))


def main(args):
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    ctx = mp.get_context("fork")
    ring = FrameRing(args.slots, args.unroll, args.obs_dim, ctx)
    policy = nn.Linear(args.obs_dim, args.obs_dim).share_memory()
    frame_times = [0.002, 0.002, 0.002, 0.004]
    for i, ft in enumerate(frame_times):
        ctx.Process(target=run_actor, args=(i, ring, policy, ft, args.seed),
                    name=f"actor-{i}", daemon=True).start()
    Learner(args, ring, policy).run()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--slots", type=int, default=8)
    ap.add_argument("--unroll", type=int, default=32)
    ap.add_argument("--obs-dim", type=int, default=32)
    ap.add_argument("--batch-size", type=int, default=4)
    ap.add_argument("--seed", type=int, default=5)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    main(ap.parse_args())
