"""Compile a function, and keep the pool of compilers that did it.

torch.compile starts a side process with a pool of workers. They stay when the work is done, each
rank has its own, and by default there are as many as there are cores.
"""

import os
import time

import torch

from mpwatch.demo.bounds import begin


def main():
    seconds = begin(__doc__)
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "4"
    os.environ["TORCHINDUCTOR_WORKER_START"] = "subprocess"
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(os.environ["TMPDIR"], "inductor")
    until_s = time.monotonic() + seconds
    step = torch.compile(lambda values: torch.sin(values) * 2 + values)
    step(torch.randn(1000))
    print("ready", flush=True)
    while time.monotonic() < until_s:
        step(torch.randn(1000))
        time.sleep(0.05)


if __name__ == "__main__":
    main()
