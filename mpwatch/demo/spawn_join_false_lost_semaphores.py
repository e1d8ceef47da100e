"""Start a process and drop the queue it was given before it has come up.

A spawned process opens the queue's locks by name, seconds after `start` has returned. By then the
parent has let go of its last reference, and with it of the names.
"""

import time

import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin


def work(queue):
    queue.put("never reached")


def start_in_background(spawn):
    worker = spawn.Process(target=work, args=(spawn.Queue(),))
    worker.start()
    return worker


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    spawn = mp.get_context("spawn")
    ready = False
    while time.monotonic() < until_s:
        worker = start_in_background(spawn)
        worker.join()
        print(f"worker ended with {worker.exitcode}", flush=True)
        if not ready:
            print("ready", flush=True)
            ready = True


if __name__ == "__main__":
    main()
