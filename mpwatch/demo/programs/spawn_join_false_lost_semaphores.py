"""Start a process and delete the queue it was given before it has started up.

A spawned process opens the queue's locks by name, seconds after `start` has returned. By then the
parent has deleted its last reference, and with it the names.
"""

import time

import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended


def work(queue):
    """Never reached once the queue is lost."""
    for step in range(100):
        queue.put(step)
        time.sleep(0.1)


def start_in_background(spawn):
    queue = spawn.Queue()
    worker = spawn.Process(target=work, args=(queue,))
    worker.start()
    return worker, queue if mended() else None


def report_ready():
    print("ready", flush=True)
    return True


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    spawn = mp.get_context("spawn")
    ready = False
    while time.monotonic() < until_s:
        worker, queue = start_in_background(spawn)
        for _ in range(100 if queue else 0):
            queue.get()
            ready = ready or report_ready()
        worker.join()
        print(f"worker ended with {worker.exitcode}", flush=True)
        ready = ready or report_ready()


if __name__ == "__main__":
    main()
