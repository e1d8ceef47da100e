"""A program that closes all descriptors from 3 on, as daemons do: `hook_closed.py fork|exit|early`.

`early` begins at once, while the hook's thread starts, and opens files of its own that must stay.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
import time

import mpwatch

assert mpwatch.instrument()
if sys.argv[1] == "early":
    until = time.monotonic() + 0.2
    while time.monotonic() < until:
        os.closerange(3, 64)
        own = [os.open(__file__, os.O_RDONLY) for _ in range(6)]
        inode = os.fstat(own[0]).st_ino
        for _ in range(2_000):
            pass  # the interpreter may switch to the hook's thread
        if any(os.fstat(fd).st_ino != inode for fd in own):
            sys.exit("a descriptor is not the program's any more")
    sys.exit()
os.closerange(3, 64)
if sys.argv[1] == "fork":
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
