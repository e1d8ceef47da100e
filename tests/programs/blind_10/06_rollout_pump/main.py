"""Actors push rollouts, the learner fits a value function to them."""
import argparse
import logging
import multiprocessing as mp
import time

import torch

from actors import actor_main
from learner import ValueLearner

log = logging.getLogger("pump")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--actors", type=int, default=3)
    parser.add_argument("--rollout-length", type=int, default=64)
    parser.add_argument("--pause", type=float, default=0.25)
    parser.add_argument("--seconds", type=float, default=135)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    torch.set_num_threads(1)

    rollouts = mp.Queue()
    actors = [mp.Process(target=actor_main, args=(i, rollouts, args.rollout_length, args.pause), name=f"actor-{i}",
                         daemon=True) for i in range(args.actors)]
    for process in actors:
        process.start()

    learner = ValueLearner()
    deadline = time.monotonic() + args.seconds
    while time.monotonic() < deadline:
        loss = learner.learn(rollouts.get())
        if learner.updates % 20 == 0:
            log.info("update %d value loss %.3f", learner.updates, loss)
    for process in actors:
        process.terminate()


if __name__ == "__main__":
    main()
