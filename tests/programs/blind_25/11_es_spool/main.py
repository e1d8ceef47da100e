"""Evolution strategies on cart-pole with workers that share a task spool on disk."""
import argparse
import logging
import multiprocessing as mp
import tempfile
import time

import torch

import worker
from spool import Spool
from task import PoleTask

log = logging.getLogger("es")


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--population", type=int, default=12)
    p.add_argument("--episodes", type=int, default=16)
    p.add_argument("--horizon", type=int, default=100)
    p.add_argument("--sigma", type=float, default=0.3)
    p.add_argument("--lr", type=float, default=0.3)
    p.add_argument("--generations", type=int, default=100000)
    p.add_argument("--max-pause", type=float, default=15.0, help="longest wait of a worker on an empty spool")
    return p.parse_args()


class Master:
    def __init__(self, args, root):
        self.args = args
        self.spool = Spool(root)
        self.theta = torch.zeros(PoleTask.size())
        self.seed = 0

    def generation(self, gen):
        waiting = set()
        for i in range(self.args.population):
            self.seed += 1
            name = f"g{gen:05d}_{i:03d}"
            self.spool.put_task(name, (self.theta, self.seed, self.args.sigma))
            waiting.add(name)
        results = {}
        while waiting:
            got = self.spool.collect()
            results.update(got)
            waiting.difference_update(got)
            time.sleep(0.01)
        scores = torch.tensor([[p, m] for _, p, m in results.values()])
        ranks = scores.flatten().argsort().argsort().float().view_as(scores) / (scores.numel() - 1) - 0.5
        grad = torch.zeros_like(self.theta)
        for (seed, _, _), (rp, rm) in zip(results.values(), ranks):
            eps = torch.randn(self.theta.numel(), generator=torch.Generator().manual_seed(seed))
            grad += (rp - rm) * eps
        self.theta = self.theta + self.args.lr * grad / (len(results) * self.args.sigma)
        return scores.mean().item(), scores.max().item()

    def run(self):
        for gen in range(self.args.generations):
            t0 = time.time()
            mean, best = self.generation(gen)
            log.info("generation %d mean %.1f best %.1f in %.2fs", gen, mean, best, time.time() - t0)


if __name__ == "__main__":
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s-%(process)d %(message)s")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="es_") as root:
        Spool(root)
        for wid in range(args.workers):
            mp.Process(target=worker.main, args=(wid, root, args), daemon=True, name=f"worker-{wid}").start()
        Master(args, root).run()
