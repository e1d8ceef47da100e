"""Runs several trials on one machine in turns."""
import argparse
import logging
import multiprocessing as mp

from scheduler import SliceScheduler
from trial import trial_main


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lrs", type=float, nargs="+", default=[0.3, 0.1, 0.03])
    parser.add_argument("--slice", type=float, default=14.0)
    parser.add_argument("--slices", type=int, default=9)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    trials = [mp.Process(target=trial_main, args=(f"lr={lr}", lr), name=f"trial-{i}", daemon=True)
              for i, lr in enumerate(args.lrs)]
    SliceScheduler(trials, args.slice).run(args.slices)


if __name__ == "__main__":
    main()
