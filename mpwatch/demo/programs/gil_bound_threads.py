"""Tokenize in four Python threads, of which one at a time can run.

Only the thread that holds the global interpreter lock runs Python code: four busy threads use one
core.
"""

import threading
import time

import torch

from mpwatch.demo.bounds import begin, mended


def tokenize(counts, worker, until_s):
    matrix = torch.rand(1200, 1200)
    while time.monotonic() < until_s:
        if mended():
            counts[worker] += int(matrix.mm(matrix).argmax())
        else:
            words = [chr(97 + position % 26) * (position % 9) for position in range(2000)]
            counts[worker] += len({word for word in words if word})


def main():
    torch.set_num_threads(1)
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    counts = [0] * 4
    threads = [
        threading.Thread(
            target=tokenize, args=(counts, worker, until_s), name=f"tokenizer-{worker}"
        )
        for worker in range(4)
    ]
    for thread in threads:
        thread.start()
    print("ready", flush=True)
    for thread in threads:
        thread.join()
    print(torch.tensor(counts).sum().item())


if __name__ == "__main__":
    main()
