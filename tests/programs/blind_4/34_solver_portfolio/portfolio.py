"""Races several solver configurations on every instance and keeps the first answer."""
import argparse
import logging
import multiprocessing as mp
import random
import time

from solvers import solve

log = logging.getLogger("portfolio")
CONFIGS = {"cold": 0.0, "warm": 0.01, "hot": 0.05, "random": 0.2}


def make_instance(n, cities):
    rng = random.Random(n)
    pts = [(rng.random(), rng.random()) for _ in range(cities)]
    return [[((a - c) ** 2 + (b - d) ** 2) ** 0.5 for c, d in pts] for a, b in pts]


def race(ctx, n, dist):
    answers = ctx.SimpleQueue()
    rng = random.Random(n)
    procs = {name: ctx.Process(target=solve, args=(name, n, dist, rng.uniform(5, 16), t, answers), name=f"{name}-{n}")
             for name, t in CONFIGS.items()}
    for proc in procs.values():
        proc.start()
    winner, value = answers.get()
    for name, proc in procs.items():
        if name != winner:
            proc.terminate()
    for proc in procs.values():
        proc.join()
    log.info("instance %d: %s first with %.3f, exit codes %s", n, winner, value,
             {name: proc.exitcode for name, proc in procs.items()})
    return winner


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--instances", type=int, default=12)
    p.add_argument("--cities", type=int, default=60)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    ctx, wins = mp.get_context("fork"), {}
    for n in range(args.instances):
        winner = race(ctx, n, make_instance(n, args.cities))
        wins[winner] = wins.get(winner, 0) + 1
        time.sleep(0.5)
    log.info("wins: %s", wins)


if __name__ == "__main__":
    main()
