"""Send a tensor from a process made with a plain `os.fork`.

The child inherits the address of its parent's descriptor server, but not the thread that serves it.
Receivers ask the parent for the child's tensors, which the parent does not know.
"""

import os
import time

import torch
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended


def serve_one_request(queue):
    """The work of a pre-forking server's worker."""
    queue.put(torch.randn(8))
    queue.close()
    queue.join_thread()


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    if not mended():  # no tensor is sent before the workers are forked
        mp.Queue().put(torch.ones(8))  # starts the descriptor server in this process
    answers = mp.Queue()
    time.sleep(0.5)
    ready = False
    while time.monotonic() < until_s:
        child = os.fork()
        if child == 0:
            serve_one_request(answers)
            time.sleep(1)
            os._exit(0)
        try:
            answers.get(timeout=5)
        except (EOFError, OSError) as error:
            print(f"no answer from {child}: {error!r}", flush=True)
        os.waitpid(child, 0)
        if not ready:
            print("ready", flush=True)
            ready = True


if __name__ == "__main__":
    main()
