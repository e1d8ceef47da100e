"""A job that still prepares its data: one process, busy, no workers yet."""

import time

import torch

from mpwatch.demo.bounds import begin


def main() -> None:
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    print("ready", flush=True)
    index = torch.zeros(10_000)
    while time.monotonic() < until_s:
        index += torch.rand(10_000)
        time.sleep(0.005)


if __name__ == "__main__":
    main()
