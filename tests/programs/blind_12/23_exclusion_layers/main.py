"""Builds the setback exclusion map from local regulations."""
import argparse
import logging
import os
import tempfile

import numpy as np

from runner import ExclusionRunner


def load_regulations(count, seed):
    rng = np.random.default_rng(seed)
    return [{"fips": f"{i:05d}", "setback": float(rng.uniform(2, 12)), "structures": int(rng.integers(6000, 9000))}
            for i in range(count)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--regulations", type=int, default=1600)
    parser.add_argument("--max-workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=3)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    merged = ExclusionRunner(load_regulations(args.regulations, args.seed), args.max_workers).run()
    np.save(os.path.join(tempfile.mkdtemp(prefix="exclusions_"), "merged.npy"), merged)


if __name__ == "__main__":
    main()
