"""Evolve the weights of a small controller on a regression task."""
import argparse
import logging
import os
import tempfile
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from evolution import Evolution


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--population", type=int, default=48)
    parser.add_argument("--generations", type=int, default=100000)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--elites", type=int, default=2)
    parser.add_argument("--tournament", type=int, default=4)
    parser.add_argument("--sigma", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--min-seconds", type=float, default=0.5,
                        help="do not start generations faster than this, the machine is shared")
    parser.add_argument("--max-seconds", type=float, default=125.0)
    return parser.parse_args()


def main():
    args = parse_args()
    torch.set_num_threads(1)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    search = Evolution(args)
    best = search.fit(time.time() + args.max_seconds)
    with tempfile.TemporaryDirectory(prefix="evolution_") as outdir:
        torch.save({"genome": torch.from_numpy(np.asarray(best.genome)), "fitness": best.fitness,
                    "history": search.run_details}, os.path.join(outdir, "best.pt"))
    logging.info("best fitness %.5f in generation %d", best.fitness, best.generation)


if __name__ == "__main__":
    main()
