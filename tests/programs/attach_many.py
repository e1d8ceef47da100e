"""Many idle threads or children: `attach_many.py threads|children|parked|calm N`.

Those of `threads` and `children` wake several times a second; threads that are `parked` never do,
and `calm` children once a second.
"""

import ctypes
import os
import signal
import sys
import threading
import time

PR_SET_PDEATHSIG = 1


def threads(count: int) -> None:
    def turn() -> None:
        while True:
            time.sleep(0.2)

    for _ in range(count):
        threading.Thread(target=turn, daemon=True).start()


def parked(count: int) -> None:
    threading.stack_size(64 << 10)
    never = threading.Event()
    for _ in range(count):
        threading.Thread(target=never.wait, daemon=True).start()


def children(count: int, pause_s: float = 0.05) -> None:
    for _ in range(count):
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            while True:
                time.sleep(pause_s)


def calm(count: int) -> None:
    children(count, 1.0)


if __name__ == "__main__":
    make = {"threads": threads, "children": children, "parked": parked, "calm": calm}
    make[sys.argv[1]](int(sys.argv[2]))
    print("ready", flush=True)
    while True:
        time.sleep(0.05)
