"""Set an event that a killed process was waiting for.

`set` waits until every waiting process has woken up. The killed one never does.
"""

import os
import signal
import time

import torch
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended


def wait_for_weights(weights, updated):
    while True:
        updated.wait()
        updated.clear()
        print(weights.sum().item(), flush=True)


def main():
    until_s = time.monotonic() + begin(__doc__)
    weights, updated = torch.zeros(100).share_memory_(), mp.Event()
    worker = mp.Process(target=wait_for_weights, args=(weights, updated), daemon=True)
    worker.start()
    time.sleep(0.5)  # by now it waits
    if not mended():
        os.kill(worker.pid, signal.SIGKILL)
        worker.join()
    print("ready", flush=True)
    while time.monotonic() < until_s:
        weights += 1
        updated.set()
        time.sleep(1)


if __name__ == "__main__":
    main()
