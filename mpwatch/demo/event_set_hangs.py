"""Set an event that a killed process was waiting for.

`set` waits until everybody who slept has woken up. One of them never will.
"""

import os
import signal
import time

import torch
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin


def wait_for_weights(weights, updated):
    updated.wait()
    print(weights.sum().item())


def main():
    begin(__doc__)
    weights, updated = torch.zeros(100).share_memory_(), mp.Event()
    worker = mp.Process(target=wait_for_weights, args=(weights, updated))
    worker.start()
    time.sleep(0.5)  # it waits by now
    os.kill(worker.pid, signal.SIGKILL)
    worker.join()
    weights += 1
    print("ready", flush=True)
    updated.set()


if __name__ == "__main__":
    main()
