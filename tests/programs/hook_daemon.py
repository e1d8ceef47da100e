"""A program that becomes a daemon as textbooks say, and works.

    hook_daemon.py "with|without first|last"

It forks, becomes the leader of a session, forks again and closes all descriptors but that of its
output, `first` before the second fork. Then 0, 1 and 2 are /dev/null. `with` has the hook.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading

import mpwatch

OUTPUT = 500
how, when = sys.argv[1].split()


def close_all() -> None:
    os.closerange(0, OUTPUT)
    os.closerange(OUTPUT + 1, 4096)


if how == "with":
    assert mpwatch.instrument()
os.dup2(1, OUTPUT, inheritable=False)
if os.fork():
    os._exit(0)
os.setsid()
if when == "first":
    close_all()
if os.fork():
    os._exit(0)
os.chdir("/")
os.umask(0)
if when == "last":
    close_all()
standard = [os.open(os.devnull, os.O_RDWR) for _ in range(3)]
thread = threading.Thread(target=int)
thread.start()
thread.join()
context = multiprocessing.get_context("fork")
queue = context.SimpleQueue()
process = context.Process(target=queue.put, args=(42,))
process.start()
process.join()
leads = os.getsid(0) == os.getpid()
line = f"{standard} {queue.get()} exit code {process.exitcode}, leader {leads}\n"
os.write(OUTPUT, line.encode())
