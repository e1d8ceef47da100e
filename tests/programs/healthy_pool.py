"""A Pool that evaluates folds, idle between two rounds."""

import time

import torch
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin


def evaluate(fold: int) -> torch.Tensor:
    time.sleep(0.05)
    return torch.full((1000,), float(fold)).mean()


def main() -> None:
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    rounds = 0
    with mp.Pool(2) as pool:
        while time.monotonic() < until_s:
            assert len(pool.map(evaluate, range(8))) == 8
            rounds += 1
            if rounds == 2:
                print("ready", flush=True)
            time.sleep(0.3)


if __name__ == "__main__":
    main()
