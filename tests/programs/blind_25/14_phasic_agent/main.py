"""Phasic policy gradient on a foraging world: short policy iterations, then one long auxiliary phase per cycle."""
import argparse
import logging

import torch

from learner import PhasicLearner


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--actors", type=int, default=3)
    p.add_argument("--envs", type=int, default=16, help="worlds per actor")
    p.add_argument("--size", type=int, default=19)
    p.add_argument("--width", type=int, default=6)
    p.add_argument("--horizon", type=int, default=48)
    p.add_argument("--policy-iters", type=int, default=8)
    p.add_argument("--aux-epochs", type=int, default=2)
    p.add_argument("--minibatch", type=int, default=512)
    p.add_argument("--gamma", type=float, default=0.9)
    p.add_argument("--lr", type=float, default=5e-4)
    p.add_argument("--pace", type=float, default=0.6, help="pause between iterations (shared machine)")
    p.add_argument("--cycles", type=int, default=10000)
    p.add_argument("--seed", type=int, default=0)
    return p.parse_args()


if __name__ == "__main__":
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s-%(process)d %(message)s")
    torch.set_num_threads(1)
    PhasicLearner(args).run()
