"""Forks by hand and by multiprocessing: `hook_fork_warnings.py always|error`.

The word says what becomes of warnings.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
import warnings
from typing import Any

END_S = 20.0


def tasks() -> int:
    return len(os.listdir("/proc/self/task"))


def wait_for_tasks(number: int) -> bool:
    """Whether this process has so many threads, at the latest after a while."""
    end_s = time.monotonic() + END_S
    while tasks() != number and time.monotonic() < end_s:
        os.sched_yield()
    return tasks() == number


def main() -> None:
    import mpwatch

    action: Any = sys.argv[1]
    warnings.simplefilter(action)
    assert mpwatch.instrument()
    for _ in range(3):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        print("thread is back", wait_for_tasks(2), flush=True)
    context = multiprocessing.get_context("fork")
    for _ in range(3):
        process = context.Process(target=os.getpid)
        process.start()
        process.join()
        print("thread is back", wait_for_tasks(2), flush=True)


if __name__ == "__main__":
    main()
