"""Evaluates a population of policies, one process each."""
import argparse
import logging
import multiprocessing as mp
import os

from evaluator import evaluator_main

log = logging.getLogger("fleet")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policies", type=int, default=5)
    parser.add_argument("--envs", type=int, default=256)
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="intra-op threads of each policy")
    parser.add_argument("--seconds", type=float, default=120)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
    results = mp.SimpleQueue()
    workers = [mp.Process(target=evaluator_main, args=(i, args, results), name=f"policy-{i}")
               for i in range(args.policies)]
    for worker in workers:
        worker.start()
    table = [results.get() for _ in workers]
    for worker in workers:
        worker.join()
    for ident, steps, score in sorted(table, key=lambda row: -row[2]):
        log.info("policy %d: %.3f after %d steps", ident, score, steps)


if __name__ == "__main__":
    main()
