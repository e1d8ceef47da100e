"""Spawn a function of a program that has no file: a notebook, `python -c`, standard input.

The child gets the function's name and the module to import it from, and cannot import that module.
"""

import os
import sys
import time

import torch
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended


def work():
    """Never reached where the main module cannot be imported."""
    for _ in range(100):
        torch.rand(1000).sum()
        time.sleep(0.1)


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    ready = False
    while time.monotonic() < until_s:
        child = mp.get_context("spawn").Process(target=work)
        child.start()
        if mended():
            print("ready", flush=True)
        child.join()
        print(f"child ended with {child.exitcode}", flush=True)
        if not ready:
            print("ready", flush=True)
            ready = True


if __name__ == "__main__":
    if sys.argv[0] == "-c" or mended():
        main()
    else:
        code = f"exec(open({os.path.abspath(__file__)!r}).read())"
        os.execv(sys.executable, [sys.executable, "-c", code, *sys.argv[1:]])
