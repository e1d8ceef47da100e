"""A parent whose children fail and that exits without cleanup: `hook_deaths.py WAY...`."""

from __future__ import annotations

import mmap
import multiprocessing
import os
import signal
import sys
import tempfile
from typing import Any

import mpwatch


def die(way: str, fifo: Any) -> None:
    fifo.put(way)
    if way == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if way == "bus":
        with tempfile.TemporaryFile() as file:
            file.truncate(mmap.PAGESIZE)
            memory = mmap.mmap(file.fileno(), mmap.PAGESIZE)
            file.truncate(0)
            memory[0] = 1
    if way == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(4)


def main() -> None:
    assert mpwatch.instrument()
    context = multiprocessing.get_context("fork")
    fifo = context.SimpleQueue()
    for way in sys.argv[1:]:
        process = context.Process(target=die, args=(way, fifo))
        process.start()
        assert process.pid is not None
        if way == "stop":
            os.waitpid(process.pid, os.WUNTRACED)
            process.kill()
        process.join()
        print(way, process.pid, process.exitcode, fifo.get())
    print("main", os.getpid(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
