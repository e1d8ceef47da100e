"""A program that changes users or namespaces: `hook_privileges.py MODE`, a function of this file.

Calls that the kernel applies to all threads, and processes with the rights of several users.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import sys
import time
from typing import Any

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


def several() -> None:
    """Some of the ids are those of another user before the hook is attached."""
    for users, groups in (((65534, 0, 0), (0, 0, 0)), ((0, 0, 0), (65534, 0, 0))):
        os.setresgid(*groups)
        os.setresuid(*users)
        print(mpwatch.instrument(), sys.modules["mpwatch.hook"].refusal)
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)
    print(mpwatch.instrument())


def loaded() -> None:
    """Under `mpwatch run`."""
    hook = sys.modules.get("_mpwatch_hook")
    print(os.getresuid(), hook is not None and hook.current() is not None)


def child() -> None:
    """A child is forked while the process has given up root for a moment."""
    session = attached()
    os.seteuid(65534)
    pid = os.fork()
    if not pid:
        session.wake()
        print(session.state, session.server.path, session.ring.path, *session.problems)
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(pid, 0)


def changed() -> None:
    """One of the ids becomes that of another user once the hook is attached."""
    attached()
    os.setresuid(65534, 0, 0)
    print("ready", flush=True)
    sys.stdin.readline()


def attached() -> Any:
    assert mpwatch.instrument()
    wait_for_thread()
    return sys.modules["mpwatch.hook"].current()


if sys.argv[1] in ("unshare", "setuid"):
    attached()
globals()[sys.argv[1]]()
