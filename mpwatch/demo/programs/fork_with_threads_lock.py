"""Fork while another thread holds a lock.

The child gets a copy of the locked lock, and has no thread that could release it.
"""

import threading
import time

import torch
import torch.multiprocessing as mp

from mpwatch.demo.bounds import begin, mended

statistics_lock = threading.Lock()
statistics = torch.zeros(10)


def report_statistics():
    """A metrics thread, which holds the lock while it sends."""
    while True:
        with statistics_lock:
            time.sleep(0.5)
        time.sleep(0.01)


def work():
    while True:
        with statistics_lock:
            statistics.add_(1)
        time.sleep(0.1)


def main():
    begin(__doc__)
    reporter = threading.Thread(target=report_statistics, daemon=True)
    child = mp.get_context("fork").Process(target=work, daemon=True)
    for each in (child, reporter) if mended() else (reporter, child):
        each.start()
        time.sleep(0.2)
    print("ready", flush=True)
    child.join()


if __name__ == "__main__":
    main()
