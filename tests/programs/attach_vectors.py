"""Computes in vector registers all the time, and prints a line if a single bit is wrong."""

import os
import sys

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np

if __name__ == "__main__":
    left = np.random.default_rng(1).random((96, 96))
    right = np.random.default_rng(2).random((96, 96))
    expected = (left @ right).tobytes()
    print("ready", flush=True)
    while True:
        for _ in range(2000):
            if (left @ right).tobytes() != expected:
                print("wrong", flush=True)
                sys.exit(1)
        print("right", flush=True)
