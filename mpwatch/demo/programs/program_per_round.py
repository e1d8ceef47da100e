"""Ask a program of its own for the size of each file, one after the other.

Each round starts an interpreter, which takes far longer than what it is asked.
"""

import os
import subprocess
import sys
import time

import torch

from mpwatch.demo.bounds import begin, mended

ASKS = "import json, os, sys; print(json.dumps(os.stat(sys.argv[1]).st_size))"


def size_of(path):
    if mended():
        time.sleep(0.05)
        return os.stat(path).st_size
    command = [sys.executable, "-c", ASKS, path]
    return int(subprocess.run(command, capture_output=True, check=True).stdout)


def measure(paths):
    return torch.tensor([size_of(path) for path in paths], dtype=torch.float).mean()


def main():
    seconds = begin(__doc__)
    torch.set_num_threads(1)
    until_s = time.monotonic() + seconds
    print("ready", flush=True)
    while time.monotonic() < until_s:
        for name in sorted(os.listdir(os.path.dirname(os.__file__)))[:20]:
            measure([os.path.join(os.path.dirname(os.__file__), name)])


if __name__ == "__main__":
    main()
