"""Objects that are freed while an observer requests stacks: `hook_destructors.py SECONDS`.

Six threads make objects with `__del__` as local variables, which a stack taken by reference would
keep. At the end it prints how many were freed, and the names of other threads on which one was.
"""

from __future__ import annotations

import ctypes  # noqa: F401 - with it, local variables are read
import sys
import threading
import time

import mpwatch

found: set[str] = set()
own: set[int] = set()
died = [0]


class Thing:
    def __del__(self) -> None:
        died[0] += 1
        if threading.get_ident() not in own:
            with open(f"/proc/self/task/{threading.get_native_id()}/comm") as file:
                found.add(file.read().strip())


def local(depth: int) -> int:
    if depth:
        return local(depth - 1)
    thing = Thing()
    return sum(range(20)) + id(thing)


def work(until_s: float) -> None:
    own.add(threading.get_ident())
    while time.monotonic() < until_s:
        local(30)
        if not died[0] % 50:
            time.sleep(0.0005)  # in which the hook's thread runs


def main() -> None:
    own.add(threading.get_ident())
    assert mpwatch.instrument()
    print("ready", flush=True)
    until_s = time.monotonic() + float(sys.argv[1])
    threads = [threading.Thread(target=work, args=(until_s,)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(died[0] > 1000, sorted(found), flush=True)


main()
