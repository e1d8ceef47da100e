"""Spawn a Pool from a program that was read from standard input, as in `python - < train.py`.

The workers would import the program's file, and there is none. Each of them fails as it starts, the
Pool starts another one in its place, and the main process waits for ever.
"""

import os
import sys
import time

import torch
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended


def double(tensor):
    return tensor * 2


def main():
    until_s = time.monotonic() + begin(__doc__)
    with mp.get_context("spawn").Pool(1) as pool:
        print("ready", flush=True)
        while time.monotonic() < until_s:
            print(pool.map(double, [torch.ones(2)]))
            time.sleep(0.5)


if __name__ == "__main__":
    if "STDIN" in os.environ or mended():
        main()
    else:
        os.environ["STDIN"] = "1"
        with open(os.path.abspath(__file__)) as program:
            os.dup2(program.fileno(), 0)
        os.execv(sys.executable, [sys.executable, "-", *sys.argv[1:]])
