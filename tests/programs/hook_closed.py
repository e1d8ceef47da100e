"""A program that closes all descriptors from 3 on, as daemons do: `hook_closed.py HOW`.

HOW is `fork`, `exit`, or one of these, where it opens files of its own that must stay:

- `early`: at once, while the hook's thread starts;
- `early_each`: the same, and closes the descriptors one by one;
- `between`: in a moment that lasts 50 ms here and a microsecond else, when the hook's thread has
  found that a descriptor is still its own, and is about to close it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import socket
import sys
import threading
import time
from typing import Any

import mpwatch

how = sys.argv[1]
about_to_close = threading.Event()


def close_all() -> None:
    if how != "early_each":
        os.closerange(3, 64)
        return
    for fd in range(3, 64):
        with contextlib.suppress(OSError):
            os.close(fd)


def pause_before_closing() -> None:
    """Let the hook's thread wait between the check of a descriptor and its end."""
    from mpwatch.hook.transport import runtime_dir

    main = threading.get_ident()

    def close(system: Any, fd: int, path: str | bytes) -> None:
        if runtime_dir.is_open(system, fd, path):
            if threading.get_ident() != main:
                about_to_close.set()
                time.sleep(0.05)
            system.os.close(fd)

    runtime_dir.close = close


if how == "between":
    pause_before_closing()
    import ctypes

    # In a program of several threads that has ctypes, the hook's one looks for the process of each
    # file when it starts.
    assert ctypes is sys.modules["ctypes"]
    threading.Thread(target=time.sleep, args=(5,), daemon=True).start()
    folder = os.environ["XDG_RUNTIME_DIR"] + "/mpwatch"
    os.makedirs(folder, 0o700, exist_ok=True)
    for number in range(8):
        open(f"{folder}/{os.getpid()}-{number}.ring", "wb").close()
assert mpwatch.instrument()
if how in ("early", "early_each", "between"):
    if how == "between":
        assert about_to_close.wait(30)
    until = time.monotonic() + 0.2
    while time.monotonic() < until:
        close_all()
        own = [os.open(__file__, os.O_RDONLY) for _ in range(6)]
        inode = os.fstat(own[0]).st_ino
        for _ in range(2_000):
            pass  # the interpreter may switch to the hook's thread
        if how == "between":
            time.sleep(0.1)
        for fd in own:
            try:
                is_own = os.fstat(fd).st_ino == inode
            except OSError as error:
                sys.exit(f"descriptor {fd} of the program was closed: {error}")
            if not is_own:
                sys.exit(f"descriptor {fd} is not the program's any more")
    sys.exit()
close_all()
if how == "fork":
    server = socket.socket()  # gets the number of the hook's descriptor
    server.bind(("127.0.0.1", 0))
    server.listen()
    # The hook's thread sleeps in `poll`, which looks at the program's socket now.
    deadline = time.monotonic() + 30
    while len(os.listdir("/proc/self/task")) > 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    print("fd", server.fileno())
    for _ in range(3):
        process = multiprocessing.get_context("fork").Process(target=int)
        process.start()
        process.join()
        print("exit code", process.exitcode, "threads", len(os.listdir("/proc/self/task")))
    client = socket.create_connection(server.getsockname(), 5)
    client.sendall(b"hello")
    accepted, _ = server.accept()
    print(accepted.recv(5).decode())
