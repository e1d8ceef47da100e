"""A program that closes all descriptors from 3 on, as daemons do: `hook_closed.py fork|exit`."""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
import time

import mpwatch
from mpwatch import hook

assert mpwatch.instrument()
session = hook.current()
assert session is not None
# The hook's thread reads files when it starts. A descriptor that the program closes meanwhile is
# closed a second time after that.
while session.version is None or session.jobs:
    time.sleep(0.001)
time.sleep(0.2)
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
