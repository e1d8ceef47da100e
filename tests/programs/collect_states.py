"""Processes in every state that probes distinguish: `collect_states.py STATE`.

Prints `ready` with the numbers of interest once the state is reached, then waits for its end.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any


def ready(*words: object) -> None:
    print("ready", *words, flush=True)


def rest() -> None:
    threading.Event().wait()


def orphan() -> None:
    """A grandchild whose parent exits when a line arrives."""
    read_end, write_end = os.pipe()
    middle = os.fork()
    if middle == 0:
        child = os.fork()
        if child == 0:
            rest()
        os.write(write_end, f"{child}\n".encode())
        sys.stdin.readline()
        os._exit(0)
    ready(middle, os.read(read_end, 20).decode().strip())
    os.waitpid(middle, 0)
    print("orphaned", flush=True)
    rest()


def zombie() -> None:
    """A child that exited with code 7 and is not reaped until a line arrives."""
    child = os.fork()
    if child == 0:
        os._exit(7)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    ready(child)
    sys.stdin.readline()
    os.waitpid(child, 0)
    print("collected", flush=True)
    rest()


def deaths() -> None:
    """Children that exit in different ways when a line arrives, and are reaped at once."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    ends: list[Any] = [lambda: os._exit(0), lambda: os._exit(3)]
    ends += [lambda s=s: os.kill(os.getpid(), s) for s in (signal.SIGKILL, signal.SIGSEGV)]
    children, gates = [], []
    for end in ends:
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            os.read(read_end, 1)
            end()
        children.append(child)
        gates.append(write_end)
    ready(*children)
    sys.stdin.readline()
    for gate in gates:
        os.write(gate, b"x")
    rest()


def births() -> None:
    """Another thread starts a child for every line that arrives."""
    ready()
    for _ in sys.stdin:
        thread = threading.Thread(target=subprocess.Popen, args=(["sleep", "600"],))
        thread.start()
        thread.join()
        print("started", flush=True)


def waits() -> None:
    """One thread in each kind of wait; prints `name tid` pairs."""
    import select
    import socket

    full_read, full_write = os.pipe()
    os.set_blocking(full_write, False)
    try:
        while True:
            os.write(full_write, bytes(4096))
    except BlockingIOError:
        os.set_blocking(full_write, True)
    empty_read, empty_write = os.pipe()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("")
    listener.listen()
    left, right = socket.socketpair()
    epoll = select.epoll()
    epoll.register(empty_read, select.EPOLLIN)
    context = multiprocessing.get_context("fork")
    semaphore = context.Semaphore(0)
    sleeper = subprocess.Popen(["sleep", "600"])
    kinds = {
        "pipe-read": lambda: os.read(empty_read, 1),
        "pipe-write": lambda: os.write(full_write, bytes(4096)),
        "socket-read": lambda: left.recv(1),
        "accept": listener.accept,
        "poll": lambda: _poll(empty_read),
        "select": lambda: select.select([empty_read], [], []),
        "epoll": epoll.poll,
        "semaphore": semaphore.acquire,
        "futex": threading.Event().wait,
        "child": lambda: os.waitpid(sleeper.pid, 0),
        "timer": lambda: time.sleep(600),
    }
    tids = []
    for name, wait in kinds.items():
        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        tids.append(f"{name}={thread.native_id}")
    inodes = [os.fstat(fd).st_ino for fd in (empty_read, full_write)]
    ready(*tids, f"sleeper={sleeper.pid}", f"empty={inodes[0]}", f"full={inodes[1]}")
    sys.stdin.readline()
    del right, empty_write, full_read


def _poll(fd: int) -> None:
    import select

    poll = select.poll()
    poll.register(fd, select.POLLIN)
    poll.poll(60_000)


def names() -> None:
    """A process with hostile names."""
    with open("/proc/self/comm", "wb") as comm:
        comm.write(b"\x1b[31m)\n\xff (x")
    ready()
    rest()


def main() -> None:
    {
        "orphan": orphan,
        "zombie": zombie,
        "deaths": deaths,
        "births": births,
        "waits": waits,
        "names": names,
    }[sys.argv[1]]()


if __name__ == "__main__":
    main()
