"""Calls that the kernel applies to all threads: `hook_privileges.py unshare|setuid`."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import sys
import time

import mpwatch


def wait_for_thread() -> None:
    while len(os.listdir("/proc/self/task")) < 2:
        time.sleep(0.001)


def unshare() -> None:
    os.unshare(os.CLONE_NEWUSER)  # type: ignore[attr-defined]
    print("unshared")
    wait_for_thread()
    try:
        os.unshare(1)  # type: ignore[attr-defined]
    except OSError as error:
        trace = error.__traceback__
        print("refused", error.errno, trace is None or trace.tb_next)


def setuid() -> None:
    # Another user may not be allowed to read the interpreter's own files.
    importlib.import_module("multiprocessing.popen_fork")
    os.setgid(65534)
    os.setuid(65534)
    users = set()
    for thread in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{thread}/status") as file:
            users |= {line.split()[1] for line in file if line.startswith("Uid:")}
    print(sorted(users))
    process = multiprocessing.get_context("fork").Process(target=int)
    process.start()
    process.join()
    print(process.exitcode)


assert mpwatch.instrument()
wait_for_thread()
globals()[sys.argv[1]]()
