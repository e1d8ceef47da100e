"""REINFORCE over program templates; rewards come from worker processes that run the programs."""
import argparse
import logging
import multiprocessing as mp
import os
import random
import threading
import time

import torch
from torch import nn

import candidates
from sandbox import Sandbox

log = logging.getLogger("policy")


def reward_worker(index, tasks, results, args):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s worker{index} %(message)s", force=True)
    os.setsid()  # Ctrl-C in the terminal is for the learner only
    limit = threading.Timer(args.max_seconds, os._exit, (0,))
    limit.daemon = True
    limit.start()
    sandbox = Sandbox(args.run_timeout)
    done = 0
    while True:
        task = tasks.get()
        if task is None:
            return
        ident, source, expected = task
        results.put((ident, sandbox.score(source, expected)))
        done += 1
        if done % 20 == 0:
            logging.info("%d programs scored", done)


class Policy(nn.Module):
    def __init__(self, n_templates):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, n_templates))

    def forward(self, features):
        return torch.distributions.Categorical(logits=self.net(features))


class RewardPool:
    def __init__(self, args):
        ctx = mp.get_context("fork")
        self.tasks, self.results = ctx.Queue(), ctx.Queue()
        self.workers = [
            ctx.Process(target=reward_worker, args=(i, self.tasks, self.results, args),
                        name=f"reward{i}", daemon=True)
            for i in range(args.workers)
        ]
        for w in self.workers:
            w.start()

    def score(self, programs):
        for ident, (source, expected) in enumerate(programs):
            self.tasks.put((ident, source, expected))
        rewards = [0.0] * len(programs)
        for _ in programs:
            ident, reward = self.results.get()
            rewards[ident] = reward
        return torch.tensor(rewards)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--round", type=int, default=12)
    p.add_argument("--rounds", type=int, default=400)
    p.add_argument("--odd-from", type=int, default=3, help="round from which odd steps are proposed")
    p.add_argument("--run-timeout", type=float, default=5.0)
    p.add_argument("--think", type=float, default=0.8)
    p.add_argument("--max-seconds", type=float, default=105)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(3)
    limit = threading.Timer(args.max_seconds + 5, os._exit, (0,))
    limit.daemon = True
    limit.start()

    rng = random.Random(11)
    pool = RewardPool(args)
    policy = Policy(len(candidates.TEMPLATES))
    opt = torch.optim.Adam(policy.parameters(), lr=5e-3)
    for number in range(args.rounds):
        steps = [1, 3] if number >= args.odd_from else [1]
        problems = [(rng.randrange(1000, 5000), rng.choice(steps)) for _ in range(args.round)]
        features = torch.tensor([[n / 5000, float(s)] for n, s in problems])
        dist = policy(features)
        choices = dist.sample()
        programs = [candidates.render(int(c), n, s) for c, (n, s) in zip(choices, problems)]
        started = time.time()
        rewards = pool.score(programs)
        loss = -(dist.log_prob(choices) * (rewards - rewards.mean())).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        log.info("round %d reward %.3f (%.1fs)", number, rewards.mean().item(), time.time() - started)
        time.sleep(args.think)


if __name__ == "__main__":
    main()
