import argparse
import time

import numpy as np


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--name", required=True)
    p.add_argument("--lr", type=float, required=True)
    p.add_argument("--steps", type=int, default=900)
    args = p.parse_args()
    rng = np.random.default_rng(0)
    w, target = np.zeros(300), rng.normal(size=300)
    for step in range(args.steps):
        x = rng.normal(size=(32, 300))
        w -= args.lr * x.T @ (x @ (w - target)) / 32
        if step % 100 == 0:
            print(f"{args.name} step {step} distance {np.linalg.norm(w - target):.4f}", flush=True)
        time.sleep(0.04)
    print(f"{args.name} finished", flush=True)


if __name__ == "__main__":
    main()
