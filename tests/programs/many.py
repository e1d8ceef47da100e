"""A process with so many waiting children or threads: `many.py children|threads COUNT`."""

import os
import signal
import sys
import threading
import time


def children(count: int) -> None:
    for _ in range(count):
        if os.fork() == 0:
            signal.pause()
            os._exit(0)


def threads(count: int) -> None:
    threading.stack_size(64 << 10)
    begun = threading.Semaphore(0)
    event = threading.Event()

    def wait() -> None:
        begun.release()
        event.wait()

    for _ in range(count):
        threading.Thread(target=wait, daemon=True).start()
    for _ in range(count):
        begun.acquire()


if __name__ == "__main__":
    {"children": children, "threads": threads}[sys.argv[1]](int(sys.argv[2]))
    print("ready", flush=True)
    while True:
        time.sleep(0.05)
