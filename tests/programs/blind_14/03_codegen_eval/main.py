import argparse
import logging
import os
import sys
import tempfile
import time

import torch

from policy import TEMPLATES, TemplatePolicy
from shell import Command, ProcessExecutionError, ProcessTimedOut

log = logging.getLogger("train")
HERE = os.path.dirname(os.path.abspath(__file__))


def parse_args():
    p = argparse.ArgumentParser(description="Train a code policy on the results of running tests")
    p.add_argument("--problems", type=int, default=32)
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--test-timeout", type=float, default=5.0)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--seed", type=int, default=9)
    return p.parse_args()


class TestRunner:
    def __init__(self, timeout):
        self.timeout = timeout
        self.scratch = tempfile.mkdtemp(prefix="codegen_")
        self.sh = Command("sh", os.path.join(HERE, "run_tests.sh"))[sys.executable]
        self.count = 0

    def reward(self, problem, template):
        self.count += 1
        ports = os.path.join(self.scratch, f"port_{self.count}")
        try:
            out = self.sh[problem, TEMPLATES[template], ports](timeout=self.timeout, cwd=HERE)
            log.info("problem %d, template %d: %s", problem, template, out.strip())
            return 1.0
        except ProcessExecutionError:
            return 0.0
        except ProcessTimedOut as e:
            log.warning("problem %d, template %d: %s", problem, template, e.args[0])
            return -0.5


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    policy = TemplatePolicy(args.problems)
    opt = torch.optim.Adam(policy.parameters(), lr=args.lr)
    runner = TestRunner(args.test_timeout)
    baseline = 0.0
    for step in range(args.steps):
        began = time.time()
        problem = torch.randint(args.problems, ())
        dist = policy(problem)
        action = dist.sample()
        reward = runner.reward(int(problem), int(action))
        loss = -(reward - baseline) * dist.log_prob(action)
        opt.zero_grad()
        loss.backward()
        opt.step()
        baseline = 0.9 * baseline + 0.1 * reward
        log.info("step %d: reward %.1f, baseline %.2f, %.1f s", step, reward, baseline, time.time() - began)


if __name__ == "__main__":
    main()
