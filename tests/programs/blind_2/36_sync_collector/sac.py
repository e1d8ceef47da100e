import argparse
import logging

import numpy as np

from collector import MultiSyncCollector

log = logging.getLogger("sac")


def improve(policy, obs, act, lr=0.05, epochs=300):
    for _ in range(epochs):
        pred = np.tanh(obs @ policy)
        grad = obs.T @ ((pred - 0.3) * (1 - pred**2)) / len(obs)
        policy = policy - lr * grad
    return policy


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--envs", type=int, default=4)
    p.add_argument("--frames-per-batch", type=int, default=4096)
    p.add_argument("--latency", type=float, default=11.0)
    p.add_argument("--batches", type=int, default=5)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    collector = MultiSyncCollector(args.envs, args.frames_per_batch, args.latency, args.batches)
    for i, (obs, act, rew) in enumerate(collector):
        collector.policy = improve(collector.policy, obs, act)
        log.info("batch %d: %d frames, mean reward %.3f", i, len(obs), rew.mean())
    collector.shutdown()


if __name__ == "__main__":
    main()
