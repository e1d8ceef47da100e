"""Waits in `Queue.get()` for what a thread reads from standard input; SIGUSR1 has a handler."""

import multiprocessing
import signal
import sys
import threading
from typing import Any


def feed(queue: Any) -> None:
    for line in sys.stdin:
        queue.put(line.strip())


def notice(_number: int, _frame: object) -> None:
    print("noticed", flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, notice)
    context = multiprocessing.get_context("fork")
    inbox = context.Queue()
    threading.Thread(target=feed, args=(inbox,), daemon=True).start()
    print("ready", flush=True)
    while True:
        print("got", inbox.get(), flush=True)
