"""Start a process from a script without a main guard.

A spawned child imports the script to find its function, and so runs all of it again: it prepares
the data a second time, and then tries to start a child itself.
"""

import time

import torch
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended

seconds = begin(__doc__)
until_s = time.monotonic() + seconds


def prepare():
    """Work at the top level of the script, which should run once."""
    features = torch.zeros(1000)
    busy_until_s = time.monotonic() + 3
    while time.monotonic() < busy_until_s:
        features += torch.rand(1000)
    return features


def work():
    """Never reached without the guard."""
    for _ in range(100):
        torch.rand(1000).sum()
        time.sleep(0.1)


if __name__ == "__main__" or not mended():
    features = prepare()
    while time.monotonic() < until_s:
        child = mp.get_context("spawn").Process(target=work)
        child.start()
        if mended():
            print("ready", flush=True)
        child.join()
        print(f"child ended with {child.exitcode}", flush=True)
        print("ready", flush=True)
