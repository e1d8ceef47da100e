"""Evolution strategies: perturb the policy, play episodes in n processes, update."""
import argparse
import logging

from train import train_loop


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--n", type=int, default=3, help="number of processes")
    p.add_argument("--population", type=int, default=12)
    p.add_argument("--sigma", type=float, default=0.05)
    p.add_argument("--lr", type=float, default=0.1)
    p.add_argument("--max-episode-length", type=int, default=300)
    p.add_argument("--max-gradient-updates", type=int, default=100000)
    p.add_argument("--seed", type=int, default=0)
    return p.parse_args()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    train_loop(parse_args())
