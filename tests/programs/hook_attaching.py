"""What may happen while the hook is attached: `hook_attaching.py forked|struck|strikes`."""

from __future__ import annotations

import gc
import multiprocessing.queues
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from unittest import mock

import mpwatch
from mpwatch import hook

put_off = gc.disable
ORIGINALS = multiprocessing.queues.Queue.put, os.fork, True


class Struck(Exception):
    """The exception that a signal handler raises."""


def forked() -> None:
    """Another thread forks while no garbage is collected."""
    codes: list[int] = []

    def fork() -> None:
        pid = os.fork()
        if pid == 0:
            os._exit(0 if gc.isenabled() else 9)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

    def disable() -> None:
        put_off()
        thread = threading.Thread(target=fork)
        thread.start()
        thread.join()

    for is_on in (True, False):  # where the program has disabled gc, nothing is postponed
        (gc.enable if is_on else gc.disable)()
        with mock.patch.object(gc, "disable", disable):
            print("in", mpwatch.instrument(), "collects", gc.isenabled())
        mpwatch.uninstrument()
    print("codes", codes)


def struck() -> None:
    """A signal handler raises while gc is disabled."""

    def disable() -> None:
        put_off()
        raise Struck

    with mock.patch.object(gc, "disable", disable):
        try:
            mpwatch.instrument()
        except Struck:
            print("struck", "collects", gc.isenabled())
    print("in", mpwatch.instrument(), hook.current() is not None)


def handle(*_: object) -> None:
    raise Struck


def strike(step: Callable[[], object], number: int) -> int:
    """Call a function while a signal is due, a little later each time; 1 if its handler raised."""
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.00005 * 1.08**number)
        step()
        if signal.setitimer(signal.ITIMER_REAL, 0)[0] == 0:
            time.sleep(10)  # it is pending, maybe by way of another thread
    except Struck:
        return 1
    return 0


def is_whole() -> bool:
    """Whether the hook is attached completely or detached completely."""
    session = hook.current()
    is_as_it_was = (multiprocessing.queues.Queue.put, os.fork, gc.isenabled()) == ORIGINALS
    return is_as_it_was if session is None else session.state == "on" and gc.isenabled()


def strikes() -> None:
    """A signal handler raises at random times of attaching, then of detaching."""
    signal.signal(signal.SIGALRM, handle)
    caught, half = [0, 0], [0, 0]
    for number in range(100):
        mpwatch.uninstrument()
        caught[0] += strike(mpwatch.instrument, number)
        half[0] += not is_whole()
        mpwatch.instrument()
        caught[1] += strike(mpwatch.uninstrument, number)
        half[1] += not is_whole()
    print("caught", min(caught) > 5, "half", half)
    mpwatch.uninstrument()
    print("out", is_whole(), "in", mpwatch.instrument(), hook.current() is not None)
    mpwatch.uninstrument()
    print("tasks", len(os.listdir("/proc/self/task")), flush=True)


if __name__ == "__main__":
    {"forked": forked, "struck": struck, "strikes": strikes}[sys.argv[1]]()
