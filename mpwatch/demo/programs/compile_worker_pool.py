"""Compile a function, and keep the pool of compile workers.

torch.compile starts a side process with a pool of workers. The pool stays after the compilation,
each rank has its own, and by default it has as many workers as there are cores. With Triton
installed this happens automatically; here the program starts the pool as torch does.
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
