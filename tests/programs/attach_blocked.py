"""Blocks its main thread in one raw system call, and prints exactly what that returned, and whether
`NAP_S`, the shortest timeout of these calls, had passed by then.

The calls go to the C library directly: Python's own wrappers repeat a call after EINTR, and would
hide it.
"""

import ctypes
import errno
import json
import mmap
import os
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable

libc = ctypes.CDLL(None, use_errno=True)
NAP_S = 1.0
FUTEX_WAIT_PRIVATE = 128
SYS_FUTEX, SYS_PPOLL, SYS_PSELECT, SYS_EPOLL_PWAIT2 = {
    "x86_64": (202, 271, 270, 441),
    "aarch64": (98, 73, 72, 441),
}[os.uname().machine]
MSG_WAITFORONE = 0x10000


class Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class PollFd(ctypes.Structure):
    _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


def ready() -> None:
    """Print `ready`; only the call itself follows."""
    print("ready", flush=True)


def compute() -> None:
    """Run Python code for ever."""
    while True:
        sum(range(1000))


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


def with_timeouts() -> tuple[socket.socket, socket.socket]:
    """A pair of which each end gives up receiving and sending after a minute."""
    pair = socket.socketpair()
    for end in pair:
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            end.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", 60, 0))
    return pair


def read_with_timeout() -> tuple[int, str]:
    here, there = with_timeouts()
    buffer = ctypes.create_string_buffer(16)
    hand_over(there)
    ready()
    count = libc.read(here.fileno(), buffer, 16)
    return count, buffer.raw[: max(count, 0)].decode()


def readv_with_timeout() -> tuple[int, str]:
    here, there = with_timeouts()
    buffer = ctypes.create_string_buffer(16)
    vector = struct.pack("QQ", ctypes.addressof(buffer), 16)
    hand_over(there)
    ready()
    count = libc.readv(here.fileno(), vector, 1)
    return count, buffer.raw[: max(count, 0)].decode()


def recvmsg_with_timeout() -> tuple[int, str]:
    here, there = with_timeouts()
    buffer = ctypes.create_string_buffer(16)
    vector = ctypes.create_string_buffer(struct.pack("QQ", ctypes.addressof(buffer), 16), 16)
    header = struct.pack("QQQQQQQ", 0, 0, ctypes.addressof(vector), 1, 0, 0, 0)
    hand_over(there)
    ready()
    count = libc.recvmsg(here.fileno(), header, 0)
    return count, buffer.raw[: max(count, 0)].decode()


def splice_with_timeout() -> tuple[int, str]:
    """From a socket into a pipe: what is spliced is read from there."""
    here, there = with_timeouts()
    reader, writer = os.pipe()
    hand_over(there)
    ready()
    count = libc.splice(here.fileno(), None, writer, None, 16, 0)
    return count, os.read(reader, 16).decode() if count > 0 else ""


def recv_all() -> tuple[int, str]:
    """A part has arrived already when the thread blocks for the rest."""
    here, there = with_timeouts()
    there.send(b"x" * 3)
    buffer = ctypes.create_string_buffer(16)
    hand_over(there)
    ready()
    count = libc.recv(here.fileno(), buffer, 8, socket.MSG_WAITALL)
    return count, buffer.raw[: max(count, 0)].decode()


def recvmmsg_all() -> tuple[int, str]:
    """One of two messages has arrived already when the thread blocks for the other."""
    return receiving_messages(0, b"xxx")


def recvmmsg_one() -> tuple[int, str]:
    """As soon as one message is there the call returns."""
    return receiving_messages(MSG_WAITFORONE, b"")


def receiving_messages(flags: int, first: bytes) -> tuple[int, str]:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    here.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 60, 0))
    if first:
        there.send(first)
    buffer = ctypes.create_string_buffer(32)
    vectors = ctypes.create_string_buffer(
        b"".join(struct.pack("QQ", ctypes.addressof(buffer) + at, 16) for at in (0, 16)), 32
    )
    headers = b"".join(
        struct.pack("QQQQQQQQ", 0, 0, ctypes.addressof(vectors) + at, 1, 0, 0, 0, 0)
        for at in (0, 16)
    )
    hand_over(there)
    ready()
    count = libc.recvmmsg(here.fileno(), headers, 2, flags, None)
    return count, buffer.raw.replace(b"\0", b"").decode()


def accept_with_timeout() -> tuple[int, str]:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(b"\0accept%d" % os.getpid())
    listener.listen(1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 60, 0))
    client = socket.socket(socket.AF_UNIX)
    on_input(lambda _: client.connect(listener.getsockname()))
    ready()
    return min(libc.accept(listener.fileno(), None, None), 1), ""


def connect_with_timeout() -> tuple[int, str]:
    """To a Unix socket whose queue is full."""
    listener, first, client = (socket.socket(socket.AF_UNIX) for _ in range(3))
    name = b"\0connect%d" % os.getpid()
    listener.bind(name)
    listener.listen(0)
    first.connect(name)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 60, 0))
    address = struct.pack("<H", socket.AF_UNIX) + name
    on_input(lambda _: listener.accept())
    ready()
    return libc.connect(client.fileno(), address, len(address)), ""


def connect_tcp_with_timeout(limit_s: int = 60) -> tuple[int, str]:
    """To a listener whose queue is full: the kernel sends SYN again after one, two, four s."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    others = [socket.socket() for _ in range(3)]
    for other in others:
        other.setblocking(False)
        other.connect_ex(listener.getsockname())
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", limit_s, 0))
    address = struct.pack("<HH", socket.AF_INET, socket.htons(listener.getsockname()[1]))
    address += socket.inet_aton("127.0.0.1") + bytes(8)

    def accept_all(_: bytes) -> None:
        for _number in range(4):
            listener.accept()

    on_input(accept_all)
    ready()
    return libc.connect(client.fileno(), address, len(address)), ""


def connect_tcp_until_timeout() -> tuple[int, str]:
    return connect_tcp_with_timeout(5)


SENT_BYTES = 1 << 22


def sending(call: str) -> tuple[int, str]:
    """Send more than the socket takes: a part is under way when the thread blocks."""
    here, there = with_timeouts()
    buffer = ctypes.create_string_buffer(SENT_BYTES)
    vector = ctypes.create_string_buffer(
        struct.pack("QQ", ctypes.addressof(buffer), SENT_BYTES), 16
    )

    def empty(_: bytes) -> None:
        while there.recv(65536):
            pass

    on_input(empty)
    if call == "sendfile":
        file = os.memfd_create("content")
        os.truncate(file, SENT_BYTES)
        ready()
        return libc.sendfile(here.fileno(), file, None, SENT_BYTES), ""
    header = struct.pack("QQQQQQQ", 0, 0, ctypes.addressof(vector), 1, 0, 0, 0)
    ready()
    if call == "writev":
        return libc.writev(here.fileno(), vector, 1), ""
    if call == "sendmsg":
        return libc.sendmsg(here.fileno(), header, 0), ""
    if call == "write":
        return libc.write(here.fileno(), buffer, SENT_BYTES), ""
    return libc.send(here.fileno(), buffer, SENT_BYTES, 0), ""


def write_all() -> tuple[int, str]:
    return sending("write")


def writev_all() -> tuple[int, str]:
    return sending("writev")


def send_all() -> tuple[int, str]:
    return sending("send")


def sendmsg_all() -> tuple[int, str]:
    return sending("sendmsg")


def sendfile_all() -> tuple[int, str]:
    return sending("sendfile")


def semop() -> tuple[int, str]:
    semaphores = libc.semget(0, 1, 0o600)  # IPC_PRIVATE
    on_input(lambda _: libc.semop(semaphores, struct.pack("Hhh", 0, 1, 0), 1))
    ready()
    try:
        return libc.semop(semaphores, struct.pack("Hhh", 0, -1, 0), 1), ""
    finally:
        libc.semctl(semaphores, 0, 0)  # IPC_RMID


def semtimedop() -> tuple[int, str]:
    semaphores = libc.semget(0, 1, 0o600)
    on_input(lambda _: libc.semop(semaphores, struct.pack("Hhh", 0, 1, 0), 1))
    wait = Timespec(60, 0)
    ready()
    try:
        down = struct.pack("Hhh", 0, -1, 0)
        return libc.semtimedop(semaphores, down, 1, ctypes.byref(wait)), ""
    finally:
        libc.semctl(semaphores, 0, 0)


def msgrcv() -> tuple[int, str]:
    queue = libc.msgget(0, 0o600)
    buffer = ctypes.create_string_buffer(8 + 16)
    on_input(lambda text: libc.msgsnd(queue, struct.pack("l", 1) + text, len(text), 0))
    ready()
    try:
        count = libc.msgrcv(queue, buffer, 16, 0, 0)
        return count, buffer.raw[8 : 8 + max(count, 0)].decode()
    finally:
        libc.msgctl(queue, 0, None)


def inotify() -> tuple[int, str]:
    import tempfile

    watch = libc.inotify_init()
    with tempfile.TemporaryDirectory() as folder:
        libc.inotify_add_watch(watch, folder.encode(), 0x100)  # IN_CREATE
        on_input(lambda _: os.close(os.open(f"{folder}/new", os.O_CREAT)))
        ready()
        count = libc.read(watch, ctypes.create_string_buffer(256), 256)
        return int(count > 0) or count, ""


def sigtimedwait() -> tuple[int, str]:
    import signal

    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    awaited = struct.pack("Q120x", 1 << (signal.SIGUSR1 - 1))
    on_input(lambda _: os.kill(os.getpid(), signal.SIGUSR1))
    ready()
    return libc.sigtimedwait(awaited, None, ctypes.byref(Timespec(60, 0))), ""


def io_getevents() -> tuple[int, str]:
    return asynchronous_polls([0])


def io_getevents_two() -> tuple[int, str]:
    """One event is there already."""
    reader, writer = os.pipe()
    os.write(writer, b"x")
    return asynchronous_polls([reader, 0])


def asynchronous_polls(fds: list[int]) -> tuple[int, str]:
    """Wait until all these descriptors can be read (linux/aio_abi.h, IOCB_CMD_POLL)."""
    setup, submit, get = {"x86_64": (206, 209, 208), "aarch64": (0, 2, 4)}[os.uname().machine]
    context = ctypes.c_ulong()
    assert libc.syscall(setup, 4, ctypes.byref(context)) == 0
    polls = [
        ctypes.create_string_buffer(
            struct.pack("<QIiHhIQQqQII", 0, 0, 0, 5, 0, fd, select.POLLIN, 0, 0, 0, 0, 0), 64
        )
        for fd in fds
    ]
    blocks = (ctypes.c_void_p * len(fds))(*map(ctypes.addressof, polls))
    assert libc.syscall(submit, context, len(fds), blocks) == len(fds)
    events = ctypes.create_string_buffer(32 * len(fds))
    ready()
    return libc.syscall(get, context, len(fds), len(fds), events, None), ""


def epoll_wait() -> tuple[int, str]:
    epoll = select.epoll()
    epoll.register(0, select.EPOLLIN)
    events = ctypes.create_string_buffer(64)
    ready()
    return libc.epoll_wait(epoll.fileno(), events, 4, -1), ""


def epoll_pwait2() -> tuple[int, str]:
    epoll = select.epoll()
    epoll.register(0, select.EPOLLIN)
    events, wait = ctypes.create_string_buffer(64), Timespec(60, 0)
    ready()
    code = libc.syscall(SYS_EPOLL_PWAIT2, epoll.fileno(), events, 4, ctypes.byref(wait), None, 8)
    return code, ""


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


def constant(timeout: Timespec) -> int:
    """The address of a copy in memory that is read only: the kernel cannot store what is left."""
    file = os.memfd_create("constant")
    os.write(file, bytes(timeout))
    libc.mmap.restype = ctypes.c_void_p
    return int(libc.mmap(None, mmap.PAGESIZE, mmap.PROT_READ, mmap.MAP_PRIVATE, file, 0))


def ppoll_with_constant() -> tuple[int, str]:
    timeout = ctypes.c_void_p(constant(Timespec(60, 0)))
    input_ready = PollFd(0, select.POLLIN, 0)
    ready()
    return libc.syscall(SYS_PPOLL, ctypes.byref(input_ready), 1, timeout, None, 8), ""


def pselect_with_constant() -> tuple[int, str]:
    timeout = ctypes.c_void_p(constant(Timespec(60, 0)))
    to_read = ctypes.create_string_buffer(b"\1", 128)
    ready()
    return libc.syscall(SYS_PSELECT, 1, to_read, None, None, timeout, None), ""


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


def recv_with_low_water() -> tuple[int, str]:
    """It waits for eight bytes, of which three are there."""
    here, there = socket.socketpair()
    here.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 8)
    there.send(b"xxx")
    hand_over(there)
    buffer = ctypes.create_string_buffer(16)
    ready()
    count = libc.recv(here.fileno(), buffer, 8, 0)
    return count, buffer.raw[: max(count, 0)].decode()


def read_raw_terminal() -> tuple[int, str]:
    """It waits for eight bytes, of which three are there."""
    import pty
    import termios
    import tty

    master, terminal = pty.openpty()
    tty.setraw(terminal)
    attributes = termios.tcgetattr(terminal)
    attributes[6][termios.VMIN], attributes[6][termios.VTIME] = 8, 0
    termios.tcsetattr(terminal, termios.TCSANOW, attributes)
    os.write(master, b"xxx")
    on_input(lambda text: os.write(master, text))
    buffer = ctypes.create_string_buffer(16)
    ready()
    count = libc.read(terminal, buffer, 8)
    return count, buffer.raw[: max(count, 0)].decode()


def read_terminal() -> tuple[int, str]:
    """A line of a terminal in its usual mode, as `input()` waits for it."""
    import pty

    master, terminal = pty.openpty()
    on_input(lambda text: os.write(master, text + b"\n"))
    buffer = ctypes.create_string_buffer(16)
    ready()
    count = libc.read(terminal, buffer, 8)
    return count, buffer.raw[: max(count, 0)].decode().rstrip()


def hand_over(sock: socket.socket) -> None:
    """Write to this socket what arrives on standard input."""
    on_input(sock.sendall)


def on_input(act: Callable[[bytes], object]) -> None:
    """Start a thread that calls a function with the first line of standard input."""
    import threading

    threading.Thread(target=lambda: act(os.read(0, 16)), daemon=True).start()


CALLS = (
    recv_with_low_water, read_raw_terminal, read_terminal, io_getevents_two,
    read_pipe, recv, recv_with_timeout, epoll_wait, poll, poll_with_timeout, select_with_timeout,
    nanosleep, futex_with_timeout, sem_wait, read_with_timeout, readv_with_timeout,
    recvmsg_with_timeout, splice_with_timeout, recv_all, accept_with_timeout, connect_with_timeout,
    connect_tcp_with_timeout, connect_tcp_until_timeout, write_all, writev_all, send_all,
    sendmsg_all, sendfile_all, semop, semtimedop, msgrcv, inotify, sigtimedwait, io_getevents,
    ppoll_with_constant, pselect_with_constant, recvmmsg_all, recvmmsg_one, epoll_pwait2,
)  # fmt: skip

if __name__ == "__main__":
    call = {function.__name__: function for function in CALLS}[sys.argv[1]]
    if sys.argv[2:] == ["busy"]:
        threading.Thread(target=compute, daemon=True).start()
    started_s = time.monotonic()
    result, text = call()
    code = ctypes.get_errno() if result == -1 else 0
    has_waited = time.monotonic() - started_s >= NAP_S
    print(json.dumps([result, errno.errorcode.get(code, ""), text, has_waited]), flush=True)
    sys.stdin.read()
