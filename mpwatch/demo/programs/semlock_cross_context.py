"""Give a spawned process a queue that was made for forked ones.

`Queue()` belongs to the default start method, fork; its lock has no name by which a spawned process
could open it.
"""

import time

import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended


def work(queue):
    """Never reached with the wrong queue."""
    for step in range(100):
        queue.put(step)
        time.sleep(0.1)


def report_ready():
    print("ready", flush=True)
    return True


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    queue = mp.get_context("spawn" if mended() else "fork").Queue()
    spawn = mp.get_context("spawn")
    ready = False
    while time.monotonic() < until_s:
        try:
            worker = spawn.Process(target=work, args=(queue,))
            worker.start()
            for _ in range(100):
                queue.get()
                ready = ready or report_ready()
            worker.join()
        except RuntimeError as error:
            print(f"cannot start: {error}", flush=True)
        ready = ready or report_ready()
        time.sleep(2)


if __name__ == "__main__":
    main()
