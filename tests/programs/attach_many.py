"""Many idle threads or children: `attach_many.py threads|children N`."""

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


def children(count: int) -> None:
    for _ in range(count):
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            while True:
                time.sleep(0.05)


if __name__ == "__main__":
    {"threads": threads, "children": children}[sys.argv[1]](int(sys.argv[2]))
    print("ready", flush=True)
    while True:
        time.sleep(0.05)
