"""Synchronous PPO: collect with all workers, then update, then collect again."""
import argparse
import logging
import multiprocessing as mp
import time

import torch

from learner import PPO
from rollout import rollout_main

log = logging.getLogger("ppo")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--length", type=int, default=600)
    parser.add_argument("--seconds", type=float, default=120)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    torch.set_num_threads(1)
    remotes, workers = [], []
    for number in range(args.workers):
        here, there = mp.Pipe()
        process = mp.Process(target=rollout_main, args=(there, number, args.length), name=f"rollout-{number}", daemon=True)
        process.start()
        there.close()
        remotes.append(here)
        workers.append(process)
    ppo, iteration = PPO(), 0
    deadline = time.monotonic() + args.seconds
    while time.monotonic() < deadline:
        started = time.monotonic()
        weights = ppo.weights()
        for remote in remotes:
            remote.send(weights)
        rollouts = [remote.recv() for remote in remotes]
        collected = time.monotonic()
        loss, samples = ppo.update(rollouts)
        log.info("iteration %d: %d samples, collect %.1fs, update %.1fs, loss %.3f", iteration, samples,
                 collected - started, time.monotonic() - collected, loss)
        iteration += 1
    for remote in remotes:
        remote.send(None)
    for process in workers:
        process.join()


if __name__ == "__main__":
    main()
