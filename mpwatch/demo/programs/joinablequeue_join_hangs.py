"""Join a queue of which one consumer exited during a task.

`join` waits until every item was marked as done. The item that the consumer had taken never is.
"""

import os
import signal
import time

import torch
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended


def consume(queue):
    while True:
        fold = queue.get()
        time.sleep(0.5)
        if fold == 3 and not mended():
            os.kill(os.getpid(), signal.SIGKILL)
        torch.full((10,), float(fold)).sum()
        queue.task_done()


def main():
    until_s = time.monotonic() + begin(__doc__)
    queue = mp.JoinableQueue()
    for _ in range(2):
        mp.Process(target=consume, args=(queue,), daemon=True).start()
    while time.monotonic() < until_s:
        for fold in range(6):
            queue.put(fold)
        print("ready", flush=True)
        queue.join()


if __name__ == "__main__":
    main()
