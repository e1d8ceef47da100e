"""Count the callbacks of a Pool, and give it tasks that raise.

A callback is called for results only, and nobody asks for the result of a task that has raised: the
loop that waits for all callbacks never ends, and nothing is printed.
"""

import time

import torch
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended


def score(fold):
    torch.set_num_threads(1)
    time.sleep(0.05)
    weights = torch.ones(10)
    return weights.view(2, 4).sum().item() if fold == 3 and not mended() else weights.sum().item()


def main():
    until_s = time.monotonic() + begin(__doc__)
    scores: list[float] = []
    with mp.Pool(2) as pool:
        print("ready", flush=True)
        while time.monotonic() < until_s:
            for fold in range(6):
                pool.apply_async(score, (fold,), callback=scores.append)
            while len(scores) < 6 and time.monotonic() < until_s:
                time.sleep(0.1)
            print(f"{len(scores)} scores", flush=True)
            scores.clear()


if __name__ == "__main__":
    main()
