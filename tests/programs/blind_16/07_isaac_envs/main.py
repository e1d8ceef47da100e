"""Collects rollouts from simulator processes and updates a linear policy."""
import argparse
import logging
import time

import numpy as np

from env_worker import EnvWorkerGroup

log = logging.getLogger("rlinf")


class Policy:
    def __init__(self, obs_dim, act_dim, seed):
        self.rng = np.random.default_rng(seed)
        self.weight = self.rng.standard_normal((obs_dim, act_dim)) * 0.1
        self.best = -np.inf

    def act(self, obs):
        return np.tanh(obs @ self.weight + 0.1 * self.rng.standard_normal((len(obs), self.weight.shape[1])))

    def update(self, total):
        if total > self.best:
            self.best = total
        self.weight += 0.01 * self.rng.standard_normal(self.weight.shape)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--num-workers", type=int, default=4)
    p.add_argument("--envs-per-worker", type=int, default=8)
    p.add_argument("--epochs", type=int, default=500)
    p.add_argument("--rollout-steps", type=int, default=25)
    p.add_argument("--gpu-memory", type=int, default=19, help="simulator memory budget in GiB")
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")

    envs = EnvWorkerGroup(args.num_workers, args.envs_per_worker, args.gpu_memory)
    policy = Policy(envs.obs_dim, envs.act_dim, seed=0)
    log.info("starting %d simulators", args.num_workers)
    obs = envs.reset()
    log.info("all simulators ready")
    for epoch in range(args.epochs):
        start, total = time.perf_counter(), 0.0
        for _ in range(args.rollout_steps):
            obs, reward = envs.step(policy.act(obs))
            total += float(reward.mean())
        policy.update(total)
        log.info("epoch %d: return %.3f, %.2f s", epoch, total, time.perf_counter() - start)
    envs.close()


if __name__ == "__main__":
    main()
