"""Policy-gradient toy: a policy picks program templates, an environment runs them and rewards correct output."""
import argparse
import logging
import time
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

from code_env import CodeEnvironment, Limits
from programs import TEMPLATES, task_for

log = logging.getLogger("grpo")


class Policy(nn.Module):
    def __init__(self, n_actions, n_tasks=16, dim=32):
        super().__init__()
        self.emb = nn.Embedding(n_tasks, dim)
        self.head = nn.Linear(dim, n_actions)

    def forward(self, task):
        return torch.distributions.Categorical(logits=self.head(self.emb(task)))


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--max-seconds", type=float, default=100)
    p.add_argument("--group-size", type=int, default=8)
    p.add_argument("--parallel", type=int, default=3)
    p.add_argument("--timeout", type=float, default=1.5)
    p.add_argument("--memory-mb", type=int, default=1024)
    p.add_argument("--exploration", type=float, default=0.35)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    policy = Policy(len(TEMPLATES))
    opt = torch.optim.Adam(policy.parameters(), lr=0.03)
    env = CodeEnvironment(Limits(args.timeout, args.memory_mb * 2 ** 20))
    start, step = time.time(), 0
    with ThreadPoolExecutor(args.parallel) as threads:
        while time.time() - start < args.max_seconds:
            task = step % 16
            dist = policy(torch.tensor([task]).expand(args.group_size))
            actions = dist.sample()
            explore = torch.rand(args.group_size) < args.exploration
            actions = torch.where(explore, torch.randint(len(TEMPLATES), actions.shape), actions)
            question, answer = task_for(task)
            codes = [TEMPLATES[a].format(**question) for a in actions.tolist()]
            obs = list(threads.map(lambda c: env.step(c, answer), codes))
            reward = torch.tensor([o.reward for o in obs])
            adv = (reward - reward.mean()) / (reward.std() + 1e-4)
            loss = -(dist.log_prob(actions) * adv).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            log.info("step %d reward %.2f  %s", step, reward.mean(), " ".join(o.status for o in obs))
    log.info("finished: %d steps, %s", step, dict(env.counts))


if __name__ == "__main__":
    main()
