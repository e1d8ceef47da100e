"""Actor-learner on a toy reacher: actors stream whole episodes to the learner and get fresh weights back."""
import argparse
import logging
import multiprocessing as mp

import torch

import actor
from learner import Learner


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--actors", type=int, default=2)
    p.add_argument("--length", type=int, default=300, help="steps per episode")
    p.add_argument("--pixels", type=int, default=64)
    p.add_argument("--period", type=float, default=0.08, help="seconds per episode and actor (real-time sensor)")
    p.add_argument("--window", type=int, default=64, help="episodes kept for training")
    p.add_argument("--batch", type=int, default=512)
    p.add_argument("--noise", type=float, default=0.3)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=0)
    return p.parse_args()


if __name__ == "__main__":
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    learner = Learner(args)
    for aid in range(args.actors):
        mp.Process(target=actor.main, args=(aid, learner.port, args), daemon=True, name=f"actor-{aid}").start()
    learner.serve()
