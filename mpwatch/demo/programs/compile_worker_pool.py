"""Compile a function, and keep the pool of compilers that did it.

torch.compile starts a side process with a pool of workers. They stay when the work is done, each
rank has its own, and by default there are as many as there are cores. Where Triton is installed
this happens by itself; here the pool is started by hand, as torch does it.
"""

import os
import time

import torch
from torch._inductor.async_compile import AsyncCompile, shutdown_compile_workers

from mpwatch.demo.bounds import begin, mended

WORKERS = 4


def main():
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = str(WORKERS)
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    AsyncCompile.warm_pool()
    AsyncCompile.wakeup()
    AsyncCompile.wait_pool_ready()
    if mended():
        shutdown_compile_workers()
    print("ready", flush=True)
    values = torch.zeros(1000)
    while time.monotonic() < until_s:
        values = torch.sin(values) * 2 + values
        time.sleep(0.05)


if __name__ == "__main__":
    main()
