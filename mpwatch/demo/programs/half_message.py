"""Kill a process while it writes a message.

The reader has the length and the first part, and waits for the rest. It gets no end of file,
because it holds an inherited write end of the pipe itself.
"""

import os
import signal
import time

import torch
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended


def report(results):
    while True:
        results.put(torch.zeros(1 << 18).tolist())
        time.sleep(0.5)


def main():
    until_s = time.monotonic() + begin(__doc__)
    results = mp.SimpleQueue()
    worker = mp.Process(target=report, args=(results,), daemon=True)
    worker.start()
    time.sleep(1)  # by now it has filled the pipe and waits for a reader
    if not mended():
        os.kill(worker.pid, signal.SIGKILL)
        worker.join()
    print("ready", flush=True)
    while time.monotonic() < until_s:
        print(len(results.get()))


if __name__ == "__main__":
    main()
