"""Receive a tensor in a signal handler while receiving another one.

torch protects its table of shared segments with a lock that a thread cannot take twice. The handler
of this timer interrupts the main thread while it holds the lock, and waits for the lock itself.
"""

import signal
import threading
import time
from multiprocessing.reduction import ForkingPickler
from pickle import loads

import torch
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended


def main():
    begin(__doc__)
    mp.set_sharing_strategy("file_system")
    state = torch.zeros(8).share_memory_()
    message = bytes(ForkingPickler.dumps(state))

    due = threading.Event()

    def save_state(_signal, _frame):
        if mended():
            due.set()
        else:
            loads(message)
        signal.setitimer(signal.ITIMER_REAL, 0.0007)

    signal.signal(signal.SIGALRM, save_state)
    print("ready", flush=True)
    time.sleep(0.5)
    signal.setitimer(signal.ITIMER_REAL, 0.0007)
    while True:
        loads(message)
        if due.is_set():
            due.clear()
            loads(message)
            time.sleep(0.01)


if __name__ == "__main__":
    main()
