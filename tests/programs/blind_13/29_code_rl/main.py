"""Policy over program templates, rewarded by running the generated programs against unit tests."""
import argparse
import logging
import time
from collections import Counter

import torch

from code_reward import CodeReward
from problems import PROBLEMS, TEMPLATES

log = logging.getLogger("code_rl")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--minutes", type=float, default=1.5)
    p.add_argument("--rollouts", type=int, default=4)
    p.add_argument("--timeout-per-test", type=float, default=2.0)
    p.add_argument("--lr", type=float, default=0.03)
    p.add_argument("--entropy", type=float, default=0.2)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    reward_fn = CodeReward(args.timeout_per_test)
    logits = torch.zeros(len(PROBLEMS), len(TEMPLATES), requires_grad=True)
    opt = torch.optim.Adam([logits], lr=args.lr)
    outcomes = Counter()
    end, step = time.monotonic() + 60 * args.minutes, 0
    while time.monotonic() < end:
        k = step % len(PROBLEMS)
        dist = torch.distributions.Categorical(logits=logits[k])
        picks = dist.sample((args.rollouts,))
        programs = [TEMPLATES[i].format(**PROBLEMS[k]["fill"]) for i in picks.tolist()]
        results = reward_fn(programs, PROBLEMS[k]["tests"])
        outcomes.update(r.status for r in results)
        rewards = torch.tensor([r.reward for r in results])
        loss = -((rewards - rewards.mean()) * dist.log_prob(picks)).mean() - args.entropy * dist.entropy()
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
        if step % 5 == 0:
            log.info("step %d problem %s reward %.2f, outcomes %s", step, PROBLEMS[k]["name"], rewards.mean().item(), dict(outcomes))
    log.info("done after %d steps", step)


if __name__ == "__main__":
    main()
