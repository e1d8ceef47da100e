"""System calls for the time in which a target is stopped."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from mpwatch.attach.native import gil_syscalls


@pytest.fixture
def turns() -> Iterator[Callable[[], int]]:
    """How often another thread has run; it runs whenever it gets the GIL."""
    count = 0
    is_over = False

    def run() -> None:
        nonlocal count
        while not is_over:
            count += 1
            time.sleep(0)

    before = sys.getswitchinterval()
    thread = threading.Thread(target=run)
    thread.start()
    # This thread then gives up the GIL in calls only.
    sys.setswitchinterval(60.0)
    yield lambda: count
    is_over = True
    sys.setswitchinterval(before)
    thread.join()


@pytest.mark.parametrize("what", ["nap", "read", "write"])
def test_no_other_thread_runs_before_a_target_goes_on(what: str, turns: Callable[[], int]) -> None:
    """It would be stopped for as long as that thread computes."""
    file = os.memfd_create("target")
    before = turns()
    try:
        if what == "nap":
            gil_syscalls.nap(20_000_000)
        else:
            for _ in range(2000):
                if what == "write":
                    gil_syscalls.write(file, b"x", 0)
                else:
                    gil_syscalls.read(file, 1, 0)
        assert turns() == before
    finally:
        os.close(file)
    while turns() == before:  # what releases the GIL is seen to let it run
        time.sleep(0.001)
