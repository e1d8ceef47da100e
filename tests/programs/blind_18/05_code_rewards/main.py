"""Policy training with rewards from executed code and from a style scorer."""
import argparse
import logging
import multiprocessing as mp
import random
import signal
import time

import torch
from torch import nn

from judge import Judge
from tasks import sample_problem, write_solution

log = logging.getLogger("train")


class Policy(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


def rollout_worker(rank, requests, rollouts, walltime):
    signal.alarm(walltime)
    rng = random.Random(50 + rank)
    while True:
        job = requests.get()
        if job is None:
            return
        ticket, quality = job
        time.sleep(rng.uniform(0.35, 0.6))
        problem, size = sample_problem(rng)
        rollouts.put((ticket, problem, size, write_solution(problem, quality, rng)))


def style_worker(sources, scores, walltime):
    signal.alarm(walltime)
    while True:
        item = sources.get()
        if item is None:
            return
        ticket, source = item
        lines = source.strip().splitlines()
        scores.put((ticket, 1.0 / (1.0 + abs(len(lines) - 10))))


class Trainer:
    def __init__(self, args, ctx):
        self.args = args
        self.policy = Policy()
        self.opt = torch.optim.Adam(self.policy.parameters(), lr=1e-2)
        names = ("requests", "rollouts", "submissions", "verdicts", "sources", "scores")
        self.q = {name: ctx.Queue() for name in names}
        q, wall = self.q, args.walltime
        self.processes = [
            ctx.Process(target=rollout_worker, args=(r, q["requests"], q["rollouts"], wall),
                        name=f"rollout-{r}", daemon=True) for r in range(args.rollout_workers)]
        self.processes.append(ctx.Process(target=Judge(args.cpu_seconds).serve, name="judge", daemon=True,
                                          args=(q["submissions"], q["verdicts"], wall)))
        self.processes.append(ctx.Process(target=style_worker, name="style", daemon=True,
                                          args=(q["sources"], q["scores"], wall)))

    def start(self):
        for p in self.processes:
            p.start()
            log.info("%s started, pid %d", p.name, p.pid)

    def collect(self, features):
        with torch.no_grad():
            quality = torch.sigmoid(self.policy(features)).tolist()
        for ticket, value in enumerate(quality):
            self.q["requests"].put((ticket, value))
        for _ in quality:
            ticket, problem, size, source = self.q["rollouts"].get()
            self.q["submissions"].put((ticket, problem, size, source))
            self.q["sources"].put((ticket, source))
        rewards = torch.zeros(len(quality))
        for _ in quality:
            ticket, score = self.q["scores"].get()
            rewards[ticket] += 0.1 * score
        for _ in quality:
            ticket, reward, _ = self.q["verdicts"].get()
            rewards[ticket] += reward
        return rewards

    def update(self, features, rewards):
        advantage = rewards - rewards.mean()
        loss = -(advantage * nn.functional.logsigmoid(self.policy(features))).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()

    def fit(self):
        for step in range(1, self.args.steps + 1):
            begun = time.monotonic()
            features = torch.randn(self.args.group, 8)
            rewards = self.collect(features)
            loss = self.update(features, rewards)
            log.info("step %d reward %.3f loss %.4f (%.2f s)", step, rewards.mean().item(), loss,
                     time.monotonic() - begun)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--steps", type=int, default=500)
    p.add_argument("--group", type=int, default=6)
    p.add_argument("--rollout-workers", type=int, default=2)
    p.add_argument("--cpu-seconds", type=int, default=1, help="CPU time a submission may use")
    p.add_argument("--walltime", type=int, default=130)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    signal.alarm(args.walltime)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    trainer = Trainer(args, mp.get_context("fork"))
    trainer.start()
    trainer.fit()


if __name__ == "__main__":
    main()
