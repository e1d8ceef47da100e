"""Evolution-strategies search of an inlining-for-size policy over a module corpus."""
import argparse
import concurrent.futures
import logging
import random
import signal
import threading
import time

import torch

from compile_worker import PolicyNet
from worker_manager import LocalWorkerPool

log = logging.getLogger("inline_search")


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--modules-per-iteration", type=int, default=24)
    p.add_argument("--rollout-every", type=int, default=4,
                   help="iterations between rolling out the new policy to the workers")
    p.add_argument("--iterations", type=int, default=400)
    p.add_argument("--sigma", type=float, default=0.05)
    p.add_argument("--seed", type=int, default=11)
    p.add_argument("--walltime", type=int, default=130)
    return p.parse_args()


class CompilationDataCollector:
    """Sends modules to the pool and collects the sizes of one iteration."""

    def __init__(self, pool, modules_per_iteration, seed):
        self.pool = pool
        self.count = modules_per_iteration
        self.rng = random.Random(seed)
        self.version = 0
        self.results = []
        self._results_lock = threading.Lock()
        self._all_done = threading.Event()
        self.recompiled = 0

    def _on_done(self, stub, job, future):
        result = future.result()
        if result["stale"]:
            self.recompiled += 1
            self._submit(stub, job, reload=True)
            return
        with self._results_lock:
            self.results.append(result)
            if len(self.results) == self.count:
                self._all_done.set()

    def _submit(self, stub, job, reload=False):
        if reload:
            stub.remote_call("load_policy", self.version, self.blob)
        future = stub.remote_call("compile_module", *job, self.version)
        future.add_done_callback(lambda f: self._on_done(stub, job, f))

    def set_policy(self, version, blob, rollout):
        self.version, self.blob = version, blob
        if rollout == "all":
            self.pool.broadcast("load_policy", version, blob)
        elif rollout == "canary":
            for stub in self.pool.stubs[:-1]:
                stub.remote_call("load_policy", version, blob).result()

    def collect(self):
        self.results.clear()
        self._all_done.clear()
        for i in range(self.count):
            stub = self.pool.stubs[i % len(self.pool.stubs)]
            job = (f"module_{self.rng.randrange(4000):04d}.bc", self.rng.randrange(50, 400))
            self._submit(stub, job)
        self._all_done.wait()
        return list(self.results)


def perturb(net, sigma, gen):
    return {k: (v + sigma * torch.randn(v.shape, generator=gen)).tolist()
            for k, v in net.state_dict().items()}


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    signal.alarm(args.walltime)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)

    pool = LocalWorkerPool(args.workers, args.seed, args.walltime)
    collector = CompilationDataCollector(pool, args.modules_per_iteration, args.seed)
    net = PolicyNet()
    gen = torch.Generator().manual_seed(args.seed)
    best = float("inf")

    collector.set_policy(1, perturb(net, 0.0, gen), rollout="all")
    version = 1
    for iteration in range(1, args.iterations + 1):
        t0 = time.monotonic()
        if iteration % 2 == 0:
            version += 1
            rollout = "canary" if iteration % args.rollout_every == 0 else "all"
            collector.set_policy(version, perturb(net, args.sigma, gen), rollout)
        results = collector.collect()
        mean = sum(r["size"] for r in results) / len(results)
        if mean < best:
            best = mean
            net.load_state_dict({k: torch.tensor(v) for k, v in collector.blob.items()})
        log.info("iteration %d policy %d mean size %.1f best %.1f recompiled %d (%.2fs)",
                 iteration, version, mean, best, collector.recompiled, time.monotonic() - t0)
    pool.close()


if __name__ == "__main__":
    main()
