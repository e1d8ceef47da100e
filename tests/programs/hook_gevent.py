"""A program whose sockets, threads, clocks and forks are gevent's: `hook_gevent.py before|after`.

The word says whether the hook is attached before gevent patches the modules, or after.
"""

from __future__ import annotations

import os
import signal
import sys

if sys.argv[1] == "before":
    import mpwatch

    assert mpwatch.instrument()

from gevent import monkey

monkey.patch_all()

import multiprocessing  # noqa: E402 - as gevent wants it: patch first
import threading  # noqa: E402
import time  # noqa: E402
from typing import Any  # noqa: E402

import gevent  # noqa: E402

TICKS: list[int] = []


def fork() -> int:
    pid = os.fork()
    if pid == 0:
        os._exit(3)
    while True:
        # On a busy machine gevent 26 misses the exit of a child now and then, without the hook more
        # often than with it: another SIGCHLD makes it check again.
        with gevent.Timeout(1, False):
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.kill(os.getpid(), signal.SIGCHLD)


def tick() -> None:
    for number in range(5):
        time.sleep(0)
        TICKS.append(number)


def answer(door: Any) -> None:
    door.put("answer")


def main() -> None:
    if sys.argv[1] == "after":
        import mpwatch

        assert mpwatch.instrument()
    print("codes", [gevent.spawn(fork).get(timeout=30) for _ in range(5)])
    context = multiprocessing.get_context("fork")
    door = context.SimpleQueue()
    process = context.Process(target=answer, args=(door,))
    process.start()
    print(door.get())
    process.join(30)
    print("code", process.exitcode)
    ticker = threading.Thread(target=tick)
    ticker.start()
    ticker.join()
    print("ticks", TICKS)
    print("ready", flush=True)
    # The hub is blocked here: a hook that depended on it would not answer.
    os.read(0, 1)
    print("end", flush=True)


if __name__ == "__main__":
    main()
