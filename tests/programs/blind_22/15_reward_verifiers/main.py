"""REINFORCE with verifiable rewards; rewards are computed by verifier processes."""
import argparse
import logging
import multiprocessing as mp
import os
import threading
import time

import torch

from policy import Policy, to_answers
from verifiers import SCORERS, verifier_main

log = logging.getLogger("trainer")


class VerifierService:
    def __init__(self, cpu_seconds):
        ctx = mp.get_context("fork")
        self.results = ctx.Queue()
        self.requests = {kind: ctx.Queue() for kind in SCORERS}
        self.procs = {
            kind: ctx.Process(target=verifier_main, name=f"verifier-{kind}", daemon=True,
                              args=(kind, self.requests[kind], self.results, cpu_seconds))
            for kind in SCORERS
        }
        for proc in self.procs.values():
            proc.start()

    def score(self, step, answers):
        for queue in self.requests.values():
            queue.put((step, answers))
        rewards = torch.zeros(len(answers))
        for _ in self.requests:
            got_step, kind, values = self.results.get()
            assert got_step == step, (got_step, step)
            rewards += torch.tensor(values)
        return rewards / len(self.requests)

    def close(self):
        for queue in self.requests.values():
            queue.put(None)
        for proc in self.procs.values():
            proc.join(5)


def train(args, service):
    torch.manual_seed(0)
    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=args.lr)
    baseline = 0.0
    started = time.time()
    for step in range(args.steps):
        prompts = torch.randn(args.group, 24)
        style, value, _ = policy.act(prompts)
        rewards = service.score(step, to_answers(style, value, step, args.cases))
        style_dist, value_dist = policy(prompts)
        logp = style_dist.log_prob(style) + value_dist.log_prob(value)
        baseline = 0.9 * baseline + 0.1 * rewards.mean().item()
        loss = -((rewards - baseline) * logp).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            log.info("step %d reward %.3f (%.1f s)", step, rewards.mean().item(), time.time() - started)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--group", type=int, default=16)
    parser.add_argument("--cases", type=int, default=20)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--verifier-cpu-seconds", type=int, default=5)
    parser.add_argument("--time-limit", type=float, default=130.0)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s[%(process)d] %(message)s")
    torch.set_num_threads(1)
    service = VerifierService(args.verifier_cpu_seconds)

    def out_of_time():
        log.info("time limit reached")
        for proc in service.procs.values():
            proc.kill()
        os._exit(0)

    timer = threading.Timer(args.time_limit, out_of_time)
    timer.daemon = True
    timer.start()
    train(args, service)
    service.close()


if __name__ == "__main__":
    main()
