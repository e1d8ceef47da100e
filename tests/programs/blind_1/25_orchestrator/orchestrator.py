import argparse
import logging
import time

import torch
from torch import nn

from env_worker import make_workers

log = logging.getLogger("orchestrator")


class Scheduler:
    def __init__(self, workers):
        self.workers, self.next_id = workers, 0

    def generate_batch(self, n):
        for _ in range(n):
            w = min(self.workers, key=lambda w: len(w.pending))
            w.submit(self.next_id)
            self.next_id += 1
        rewards, last = [], time.time()
        while len(rewards) < n:
            for w in self.workers:
                rewards += [r for _, r in w.collect_responses()]
            if time.time() - last > 5:
                last = time.time()
                log.info("waiting for %d rollouts", n - len(rewards))
        return rewards


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--batch", type=int, default=16)
    ap.add_argument("--steps", type=int, default=500)
    ap.add_argument("--envs", nargs="+", default=["wordle", "math", "code"])
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    torch.set_num_threads(1)
    workers, log_dir = make_workers(args.envs)
    log.info("worker logs in %s", log_dir)
    sched, net = Scheduler(workers), nn.Linear(16, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    for step in range(args.steps):
        r = torch.tensor(sched.generate_batch(args.batch))
        loss = (net(r) - r.mean()).pow(2).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
        log.info("step %d reward %.3f", step, r.mean().item())


if __name__ == "__main__":
    main()
