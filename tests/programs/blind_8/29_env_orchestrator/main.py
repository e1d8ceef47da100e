import argparse
import logging

from orchestrator import Orchestrator


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--envs", type=int, default=3)
    p.add_argument("--updates", type=int, default=2000)
    p.add_argument("--eval-every", type=int, default=40)
    p.add_argument("--eval-timeout", type=float, default=1.5)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    Orchestrator(args).run()


if __name__ == "__main__":
    main()
