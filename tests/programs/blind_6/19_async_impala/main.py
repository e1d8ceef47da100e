"""Asynchronous actor-learner training (IMPALA style), actors in processes."""
import argparse
import logging
import multiprocessing as mp
import time

import numpy as np
import torch

from learner import ConvPolicy, LearnerThread, Receiver

log = logging.getLogger("impala")


class GridGame:
    def __init__(self, seed, size=32):
        self.rng, self.size = np.random.default_rng(seed), size

    def rollout(self, horizon):
        obs = self.rng.random((horizon, 1, self.size, self.size), dtype=np.float32)
        act = self.rng.integers(0, 4, horizon)
        rew = (obs.mean((1, 2, 3)) * 10 - 5 + 0.1 * act).astype(np.float32)
        return {"obs": obs, "act": act, "rew": rew}


def actor(index, out, horizon, rate):
    game = GridGame(index)
    while True:
        out.put(game.rollout(horizon))
        time.sleep(1 / rate)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--actors", type=int, default=2)
    ap.add_argument("--horizon", type=int, default=128)
    ap.add_argument("--rate", type=float, default=9.0)
    ap.add_argument("--duration", type=float, default=600)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rollouts = mp.Queue(maxsize=16)
    actors = [
        mp.Process(target=actor, args=(i, rollouts, args.horizon, args.rate), name=f"actor-{i}", daemon=True)
        for i in range(args.actors)
    ]
    for a in actors:
        a.start()
    learner = LearnerThread(ConvPolicy())
    receiver = Receiver(rollouts, learner)
    learner.start()
    receiver.start()
    end = time.monotonic() + args.duration
    while time.monotonic() < end:
        time.sleep(5)
        log.info("updates %d loss %.3f steps sampled %d", learner.updates, learner.last_loss,
                 receiver.received * args.horizon)


if __name__ == "__main__":
    main()
