"""Set the start method a second time.

A library set one while it was imported, so the program's own call fails.
"""

import time

import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended


def set_up_library():
    mp.set_start_method("fork")


def main():
    seconds = begin(__doc__)
    until_s = time.monotonic() + seconds
    set_up_library()
    ready = False
    while time.monotonic() < until_s:
        try:
            mp.get_context("spawn") if mended() else mp.set_start_method("spawn")
        except RuntimeError as error:
            print(f"cannot choose spawn: {error}", flush=True)
        if not ready:
            print("ready", flush=True)
            ready = True
        time.sleep(2)


if __name__ == "__main__":
    main()
