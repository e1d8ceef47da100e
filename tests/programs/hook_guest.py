"""A program with the hook attached that needs no torch: `hook_guest.py MODE`."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import resource
import signal
import socket
import struct
import sys
import threading
import time
from typing import Any


def say(*words: object) -> None:
    print(*words, flush=True)


def opened() -> Any:
    """The session, once its files and socket exist.

    On a disk its thread makes them, and `instrument` waits for that a second at most.
    """
    from mpwatch.hook import current

    session = current()
    assert session is not None
    session.server.wait_for_opening(60.0)
    return session


def listen() -> None:
    """Answer lines from the test: `end`, `leave`, or a number of records or notes to write."""
    from mpwatch.hook import wire

    session = opened()
    say("ready")
    for line in sys.stdin:
        if line.strip() == "end":
            break
        if line.strip() == "leave":
            os._exit(0)
        number, _, what = line.partition(" ")
        for _ in range(int(number)):
            if what.strip() == "notes":
                session.note("hook-problem", what="test", text="x")
                continue
            session.record(wire.QUEUE_PUT, session.system.monotonic_ns(), 0, 0, 7)
        say("wrote")


def cost() -> None:
    """Print what the hook uses without an observer."""
    import mpwatch

    mpwatch.uninstrument()
    fds = len(os.listdir("/proc/self/fd"))
    mpwatch.instrument()
    opened()
    # Its thread searches for old files when it starts, with a file open at times.
    end_ns = time.monotonic_ns() + 500_000_000
    now = os.listdir("/proc/self/fd")
    while time.monotonic_ns() < end_ns:
        now = min(now, os.listdir("/proc/self/fd"), key=len)
    say("fds", len(now) - fds)
    say("threads", len(os.listdir("/proc/self/task")) - 1, threading.active_count())
    leaky = [fd for fd in map(int, now) if fd > 2 and _is_inheritable(fd)]
    say("inheritable", leaky)
    with open("/proc/self/maps") as file:
        maps = file.read()
    say("shm", "/dev/shm" in maps)


def _is_inheritable(fd: int) -> bool:
    try:
        return os.get_inheritable(fd)
    except OSError:
        return False


def signals() -> None:
    """Raise from a signal handler again and again, in the middle of whatever is running."""
    queue: Any = multiprocessing.get_context("fork").SimpleQueue()
    caught = 0

    class Alarm(RuntimeError):
        pass

    def handler(*_: object) -> None:
        raise Alarm("from the handler")

    def forked() -> None:
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        children.append(pid)

    def queued() -> None:
        queue.put(1)
        queue.get()

    children: list[int] = []
    signal.signal(signal.SIGALRM, handler)
    sent = 0
    for step in (queued, forked):
        for number in range(60):
            sent += 1
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.00002 + number * 0.00001)
                end = time.monotonic() + 5
                while time.monotonic() < end:
                    step()
            except Alarm:
                caught += 1
            if step is queued:
                # An item may be left over, or the lock be held by the interrupted call.
                queue = multiprocessing.get_context("fork").SimpleQueue()
    for pid in children:
        os.waitpid(pid, 0)
    say("caught", caught, "of", sent)


def limits() -> None:
    """Use up all descriptors, then fork and accept an observer."""
    say("ready")
    sys.stdin.readline()
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    held = []
    try:
        while True:
            held.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        say("full")
    for _ in range(5):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    say("forked")
    sys.stdin.readline()
    for fd in held:
        os.close(fd)
    say("room")
    sys.stdin.readline()


def weight_under_run() -> None:
    """The same in a process that passes the hook on to its programs."""
    weight(is_passed_on=True)


def weight_injected() -> None:
    """The same of a hook that the test injects when it has read `ready`; then it sends a line."""
    weight(is_injected=True)


def weight(is_passed_on: bool = False, is_injected: bool = False) -> None:
    """Print the bytes that the hook uses: Python's allocations, with ring and notes filled."""
    import importlib.util
    import tracemalloc

    # All modules that the hook would load otherwise, and all that it has hook points for.
    import torch.multiprocessing
    import torch.utils.data  # noqa: F401

    importlib.util.find_spec("mpwatch")
    tracemalloc.start()
    if is_passed_on:
        from mpwatch.hook.startup import sitecustomize

        sys.modules[sitecustomize.NAME] = sys.modules.pop(sitecustomize.__name__)
        del sitecustomize, sys.modules["mpwatch.hook.startup"].sitecustomize
    if is_injected:
        say("ready")
        while "_mpwatch_hook" not in sys.modules:
            time.sleep(0.01)
        sys.stdin.readline()
    else:
        import mpwatch

        assert mpwatch.instrument()
    package: Any = sys.modules["_mpwatch_hook"]
    session, wire = package.current(), package.wire
    assert session is not None
    for _ in range(wire.DEFAULT_SLOTS):
        session.record(wire.QUEUE_PUT, 0)
        session.note("exception", text="x" * 200)
    # Its thread has work to do first, once.
    while session.jobs or session.wrapper_ns is None or type(session).version is None:
        time.sleep(0.01)
    # Until then it keeps copies of the notes that it writes to a disk.
    size = -1
    while size != (size := _written_bytes(session.notes.path)):
        time.sleep(0.5)
    gc.collect()
    ring = wire.HEADER_BYTES + wire.DEFAULT_SLOTS * wire.RECORD_BYTES
    # The least of five seconds: at times its thread has copies of the ring that it writes to the
    # disk.
    say("bytes", ring + min(_traced_bytes_soon() for _ in range(100)))


def _written_bytes(path: Any) -> int:
    """The size of a file that another thread replaces now and then."""
    while True:
        with contextlib.suppress(FileNotFoundError):
            return os.path.getsize(path)


def _traced_bytes_soon() -> int:
    import tracemalloc

    time.sleep(0.05)
    return tracemalloc.get_traced_memory()[0]


def memory() -> None:
    """Fork while no memory can be allocated; children record what their parent never does."""
    from mpwatch.hook import current, wire

    session = current()
    assert session is not None
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + 65536, resource.RLIM_INFINITY))
    codes = []
    for _ in range(20):
        pid = os.fork()
        if pid == 0:
            session.record(wire.CUDA_INIT, 0)
            os._exit(0 if session.ring.handed_out() == 1 else 9)
        codes.append(os.waitpid(pid, 0)[1])
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    codes.append(os.waitpid(pid, 0)[1])
    say("codes", sorted(set(codes)))
    say("ready")
    sys.stdin.readline()


def starved() -> None:
    """Fork while nothing more can be mapped, so that a thread gets no frame for its first call."""
    for round_ in range(2):
        with open("/proc/self/statm") as file:
            size = int(file.read().split()[0]) * resource.getpagesize()
        limit = size - 65536 if round_ else resource.RLIM_INFINITY
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
        for _ in range(
            3
        ):  # the stack of an ended thread serves the next one, without a new mapping
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            os.waitpid(pid, 0)
        time.sleep(0.1)
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    say("ready")
    sys.stdin.readline()


def nowhere() -> None:
    """Run without a usable directory; the wrappers work, and the reasons are kept."""
    from mpwatch.hook import current

    session = current()
    assert session is not None
    queue: Any = multiprocessing.get_context("fork").SimpleQueue()
    queue.put(1)
    say("got", queue.get(), session.ring.handed_out(), session.ring.path or session.files.copy.path)
    say("problems", *session.problems)
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    say("forked", os.waitpid(pid, 0)[1])


def mocked_late() -> None:
    """Replace functions of `os` and `time` while the hook is attached, then fork and accept an
    observer."""
    from unittest import mock

    from mpwatch.hook import current, wire

    session = current()
    assert session is not None
    fork, leave, wait = os.fork, os._exit, os.waitpid
    refuse = mock.Mock(side_effect=AssertionError("the hook used a replaced function"))
    names = ("open", "close", "stat", "lstat", "unlink", "getpid", "geteuid", "getresuid", "mkdir")
    patches = [mock.patch.object(os, name, refuse) for name in names]
    patches += [mock.patch.object(time, name, refuse) for name in ("monotonic_ns", "time_ns")]
    patches += [mock.patch.object(time, "sleep", refuse), mock.patch("select.poll", refuse)]
    patches += [mock.patch("_thread.start_new_thread", refuse)]
    for patch in patches:
        patch.start()
    pid = fork()
    if pid == 0:
        session.record(wire.QUEUE_PUT, 0)
        session.server.wait_for_opening(10)
        leave(0 if session.server.path is not None else 9)
    code = wait(pid, 0)[1]
    say("ready")
    sys.stdin.readline()
    for patch in patches:
        patch.stop()
    say("code", code, refuse.call_count, session.problems)


def identity() -> None:
    """Compare every object that is patched before and after."""
    import multiprocessing.popen_spawn_posix
    import multiprocessing.process
    import multiprocessing.queues
    import multiprocessing.resource_sharer
    import multiprocessing.spawn

    import mpwatch

    mpwatch.uninstrument()
    holders = (
        multiprocessing.process.BaseProcess,
        multiprocessing.queues.Queue,
        multiprocessing.queues.JoinableQueue,
        multiprocessing.queues.SimpleQueue,
        multiprocessing.resource_sharer.DupFd,
        multiprocessing.spawn,
        multiprocessing.reduction,
        threading,
    )
    before = [dict(vars(holder)) for holder in holders]
    path = list(sys.meta_path)
    fds = sorted(os.listdir("/proc/self/fd"))
    tasks = len(os.listdir("/proc/self/task"))
    mpwatch.instrument()
    time.sleep(0.3)  # its thread waits for observers by then, and must be woken up to end
    during = [dict(vars(holder)) for holder in holders]
    mpwatch.uninstrument()
    after = [dict(vars(holder)) for holder in holders]
    gc.collect()
    say("changed", sum(_differences(a, b) for a, b in zip(before, during, strict=True)) > 8)
    say("left", sum(_differences(a, b) for a, b in zip(before, after, strict=True)))
    say("path", sys.meta_path == path)
    say("fds", sorted(os.listdir("/proc/self/fd")) == fds)
    say("tasks", len(os.listdir("/proc/self/task")) - tasks)


def _differences(one: dict[str, object], two: dict[str, object]) -> int:
    return sum(1 for name in one if one[name] is not two.get(name))


def mocked() -> None:
    """Run with a replaced clock, replaced sockets and a replaced thread starter."""
    import mpwatch

    mpwatch.uninstrument()
    import _thread
    import select

    def refuse(*_: object) -> Any:
        raise AssertionError("the hook used a replaced function")

    replaced = (
        (time, "sleep"),
        (socket, "socket"),
        (select, "poll"),
        (_thread, "start_new_thread"),
        (struct, "pack"),
        (os, "open"),
    )
    for module, name in replaced:
        setattr(module, name, refuse)
    time.monotonic_ns = lambda: 5
    mpwatch.instrument()
    listen()


def main() -> None:
    import mpwatch

    if sys.argv[1] not in ("weight", "weight_under_run", "weight_injected", "identity"):
        assert mpwatch.instrument()
    modes = {
        "listen": listen,
        "weight": weight,
        "weight_under_run": weight_under_run,
        "weight_injected": weight_injected,
        "cost": cost,
        "signals": signals,
        "limits": limits,
        "identity": identity,
        "mocked": mocked,
        "mocked_late": mocked_late,
        "memory": memory,
        "starved": starved,
        "nowhere": nowhere,
    }
    modes[sys.argv[1]]()


if __name__ == "__main__":
    main()
