import argparse
import logging

from tuner import Tuner


def main():
    parser = argparse.ArgumentParser(description="random search over a small regressor")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--max-pending", type=int, default=6)
    parser.add_argument("--trials", type=int, default=5000)
    parser.add_argument("--startup-trials", type=int, default=10)
    parser.add_argument("--confirm-seeds", type=int, nargs="+", default=[1, 2, 3])
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    tuner = Tuner(args.workers, args.max_pending, args.startup_trials, args.confirm_seeds)
    best = tuner.optimize(args.trials)
    logging.info("best value %.4f with %s", best["value"], best["config"])


if __name__ == "__main__":
    main()
