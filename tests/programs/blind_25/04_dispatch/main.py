import argparse
import logging
import multiprocessing as mp

from pipeline import ScoringPipeline


def parse_args():
    p = argparse.ArgumentParser(description="score rollouts with a reward model")
    p.add_argument("--workers", type=int, default=3)
    p.add_argument("--max-concurrent", type=int, default=4)
    p.add_argument("--samples", type=int, default=500000)
    p.add_argument("--report-every", type=float, default=2.0)
    p.add_argument("--seed", type=int, default=5)
    return p.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO,
                        format="%(asctime)s %(process)d %(name)s: %(message)s")
    ScoringPipeline(args, mp.get_context("fork")).run()


if __name__ == "__main__":
    main()
