"""Blocks its main thread in one raw system call, and tells exactly what that returned.

The calls go to the C library directly: Python's own wrappers repeat a call that says EINTR, so they
would hide what is looked for here.
"""

import ctypes
import errno
import json
import os
import select
import socket
import struct
import sys
import time

libc = ctypes.CDLL(None, use_errno=True)
NAP_S = 2.0
FUTEX_WAIT_PRIVATE = 128
SYS_FUTEX = {"x86_64": 202, "aarch64": 98}[os.uname().machine]


class Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class PollFd(ctypes.Structure):
    _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


def ready() -> None:
    """Say that nothing but the call itself follows."""
    print("ready", flush=True)


def read_pipe() -> tuple[int, str]:
    buffer = ctypes.create_string_buffer(16)
    ready()
    count = libc.read(0, buffer, 16)
    return count, buffer.raw[: max(count, 0)].decode()


def recv() -> tuple[int, str]:
    buffer = ctypes.create_string_buffer(16)
    here, there = socket.socketpair()
    hand_over(there)
    ready()
    count = libc.recv(here.fileno(), buffer, 16, 0)
    return count, buffer.raw[: max(count, 0)].decode()


def recv_with_timeout() -> tuple[int, str]:
    here, there = socket.socketpair()
    here.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 60, 0))
    buffer = ctypes.create_string_buffer(16)
    hand_over(there)
    ready()
    count = libc.recv(here.fileno(), buffer, 16, 0)
    return count, buffer.raw[: max(count, 0)].decode()


def epoll_wait() -> tuple[int, str]:
    epoll = select.epoll()
    epoll.register(0, select.EPOLLIN)
    events = ctypes.create_string_buffer(64)
    ready()
    return libc.epoll_wait(epoll.fileno(), events, 4, -1), ""


def poll() -> tuple[int, str]:
    ready()
    return libc.poll(ctypes.byref(PollFd(0, select.POLLIN, 0)), 1, -1), ""


def poll_with_timeout() -> tuple[int, str]:
    ready()
    return libc.poll(ctypes.byref(PollFd(0, select.POLLIN, 0)), 1, int(NAP_S * 1000)), ""


def select_with_timeout() -> tuple[int, str]:
    wait = Timespec(int(NAP_S), 0)
    ready()
    return libc.select(0, None, None, None, ctypes.byref(wait)), ""


def nanosleep() -> tuple[int, str]:
    ready()
    return libc.nanosleep(ctypes.byref(Timespec(int(NAP_S), 0)), None), ""


def futex_with_timeout() -> tuple[int, str]:
    word, wait = ctypes.c_int(0), Timespec(int(NAP_S), 0)
    ready()
    code = libc.syscall(
        SYS_FUTEX, ctypes.byref(word), FUTEX_WAIT_PRIVATE, 0, ctypes.byref(wait), None, 0
    )
    return code, ""


def sem_wait() -> tuple[int, str]:
    semaphore = ctypes.create_string_buffer(32)
    libc.sem_init(semaphore, 0, 0)

    def post() -> None:
        os.read(0, 16)
        libc.sem_post(semaphore)

    import threading

    threading.Thread(target=post, daemon=True).start()
    ready()
    return libc.sem_wait(semaphore), ""


def hand_over(sock: socket.socket) -> None:
    """Let whatever comes on standard input go through this socket."""
    import threading

    def copy() -> None:
        sock.sendall(os.read(0, 16))

    threading.Thread(target=copy, daemon=True).start()


CALLS = (
    read_pipe, recv, recv_with_timeout, epoll_wait, poll, poll_with_timeout, select_with_timeout,
    nanosleep, futex_with_timeout, sem_wait,
)  # fmt: skip

if __name__ == "__main__":
    call = {function.__name__: function for function in CALLS}[sys.argv[1]]
    started_s = time.monotonic()
    result, text = call()
    code = ctypes.get_errno() if result == -1 else 0
    elapsed_s = time.monotonic() - started_s
    print(json.dumps([result, errno.errorcode.get(code, ""), text, elapsed_s]), flush=True)
    sys.stdin.read()
