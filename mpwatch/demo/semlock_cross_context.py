"""Give a spawned process a queue that was made for forked ones.

`Queue()` belongs to the default start method, fork; its lock has no name by which a spawned process
could find it.
"""

import time

import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin


def work(queue):
    queue.put("never reached")


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    queue = mp.get_context("fork").Queue()
    spawn = mp.get_context("spawn")
    ready = False
    while time.monotonic() < until_s:
        try:
            spawn.Process(target=work, args=(queue,)).start()
        except RuntimeError as error:
            print(f"cannot start: {error}", flush=True)
        if not ready:
            print("ready", flush=True)
            ready = True
        time.sleep(2)


if __name__ == "__main__":
    main()
