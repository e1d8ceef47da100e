"""Forks in every way a program can, with the hook attached: `hook_forks.py MODE [NUMBER]`."""

from __future__ import annotations

import _thread
import functools
import gc
import itertools
import json
import multiprocessing
import os
import signal
import socket
import struct
import sys
import threading
import time

SEEN_AT_FORK: list[int] = []


def write_early() -> None:
    """Run in a forked child before the hook's own fork function."""
    from mpwatch.hook import current, wire

    session = current()
    if session is not None and sys.argv[1] == "storm":
        session.record(wire.QUEUE_PUT, 0, 0, 0, 4242)


def count_tasks() -> None:
    SEEN_AT_FORK.append(len(os.listdir("/proc/self/task")))


def child(queue: multiprocessing.SimpleQueue[int]) -> None:
    queue.put(os.getpid())


def processes(number: int) -> None:
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    for _ in range(number):
        process = context.Process(target=child, args=(queue,))
        process.start()
        assert queue.get() == process.pid
        process.join(30)
        assert process.exitcode == 0


def raw(number: int) -> None:
    for _ in range(number):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0


def litter(number: int) -> None:
    """Fork children that record something and are killed."""
    from mpwatch.hook import current, wire

    session = current()
    assert session is not None
    for _ in range(number):
        pid = os.fork()
        if pid == 0:
            session.record(wire.QUEUE_PUT, 0)
            session.server.wait_for_opening(20)  # on a disk its thread makes the files
            os.kill(os.getpid(), signal.SIGKILL)
        assert os.waitpid(pid, 0)[1] == signal.SIGKILL


def storm(number: int) -> None:
    from mpwatch.hook import current, wire

    session = current()
    assert session is not None
    tids: set[int] = {threading.get_native_id()}

    def fork_on() -> None:
        tids.add(threading.get_native_id())
        for _ in range(number):
            pid = os.fork()
            if pid == 0:
                session.record(wire.QUEUE_PUT, 0, 0, 0, 4242)
                os._exit(0 if session.ring.handed_out() >= 1 else 9)
            assert os.waitpid(pid, 0)[1] == 0

    def write_on() -> None:
        tids.add(threading.get_native_id())
        while not stop.is_set():
            for _ in range(50):
                session.record(wire.QUEUE_GET, 0)
            time.sleep(0.001)

    stop = threading.Event()
    writer = threading.Thread(target=write_on)
    writer.start()
    forkers = [threading.Thread(target=fork_on) for _ in range(4)]
    for thread in forkers:
        thread.start()
    for thread in forkers:
        thread.join()
    stop.set()
    writer.join()
    last = session.ring.handed_out()
    held = range(max(0, last - session.ring.slots), last)
    rows = [wire.RECORD.unpack_from(session.ring.slice_of(n, n + 1)[0]) for n in held]
    print("foreign", sum(1 for row in rows if row[0] and row[4] not in tids))
    print("children", sum(1 for row in rows if row[7] == 4242))
    print("is written", sum(1 for row in rows if row[0]) > 100, flush=True)


def workers(number: int) -> None:
    """Start processes from three threads while a fourth puts into a queue."""
    context = multiprocessing.get_context("fork")
    tasks, answers = context.Queue(), context.SimpleQueue()
    codes: list[int | None] = []

    def work(task: object) -> None:
        answers.put(task)
        tasks.get()

    def start_some(thread: int) -> None:
        for task in range(number):
            process = context.Process(target=work, args=((thread, task),))
            process.start()
            process.join(60)
            codes.append(process.exitcode)

    def put_on() -> None:
        for _ in range(3 * number):
            tasks.put(bytes(1000))
            heard.append(answers.get())

    heard: list[object] = []
    threads = [threading.Thread(target=start_some, args=(each,)) for each in range(3)]
    threads.append(threading.Thread(target=put_on))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("answers", len(set(heard)))
    # Threads that start processes may reap those of other threads, which then have no exit code.
    print("failed", [code for code in codes if code])


def crowd(number: int) -> None:
    """Fork from many threads at once."""
    barrier = threading.Barrier(number)

    def fork_on() -> None:
        for _ in range(5):
            barrier.wait(60)
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            os.waitpid(pid, 0)

    threads = [threading.Thread(target=fork_on) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Struck(Exception):
    """What a signal handler raises."""


def struck(number: int) -> None:
    """Fork while three signals are pending whose handlers raise; each exception is raised once.

    The senders are C functions only, so that no handler can run before the hook's own fork
    functions.
    """
    names = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)

    def handle(signum: int, _: object) -> None:
        raise Struck(signum)

    for name in names:
        signal.signal(name, handle)
    for name in names:
        os.register_at_fork(before=functools.partial(_thread.interrupt_main, name))
    heard = [fork_struck() for _ in range(number)]
    print("heard", {tuple(sorted(each)) for each in heard} == {tuple(sorted(names))}, flush=True)


def fork_struck() -> list[int]:
    """The signals whose exceptions come out of a fork, one during the handling of the other."""
    parent = os.getpid()

    def fork_once() -> None:
        try:
            try:
                try:
                    os.fork()
                    if os.getpid() != parent:
                        os._exit(0)
                finally:
                    sum(range(100))
            finally:
                sum(range(100))
        finally:
            sum(range(100))

    heard = []
    try:
        fork_once()
    except Struck as error:
        each: BaseException | None = error
        while each is not None:
            heard.append(each.args[0])
            each = each.__context__
    os.waitpid(-1, 0)
    return heard


def mocked(number: int) -> None:
    """Fork in a process where `os.register_at_fork` was mocked when the hook was attached."""
    gc.collect()
    raw(number)
    from mpwatch.hook import current

    session = current()
    assert session is not None
    print("forks seen", session.ring.handed_out(), flush=True)


def account(number: int) -> None:
    """Read the cost of the hook between forks."""
    from mpwatch.hook import current

    session = current()
    assert session is not None
    costs = []
    for _ in range(number):
        with socket.socket(socket.AF_UNIX) as observer:
            observer.connect(str(session.server.path))
            with observer.makefile("rb") as stream:
                length, _ = struct.unpack("<IB", stream.read(5))
                costs.append(json.loads(stream.read(length))["own"]["cpu_ns"])
        raw(1)
    print("falls", sum(1 for one, next_ in itertools.pairwise(costs) if next_ < one))
    print("grows", costs[-1] > costs[0] > 0, flush=True)


def wait() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


def main() -> None:
    mode, number = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20
    # Registered before the hook's, so run after it: functions before a fork run last come first.
    if mode != "struck":  # signals would strike there
        os.register_at_fork(before=count_tasks)
        os.register_at_fork(after_in_child=write_early)
    import mpwatch

    if mode == "mocked":
        from unittest import mock  # which imports logging, whose steps at a fork may be struck

        with mock.patch("os.register_at_fork"):
            assert mpwatch.instrument()
    assert mpwatch.instrument()
    print("ready", flush=True)
    modes = (processes, raw, storm, workers, litter, crowd, struck, mocked, account)
    {each.__name__: each for each in modes}[mode](number)
    if mode in ("processes", "raw"):
        print("tasks", sorted(set(SEEN_AT_FORK)))
    print("done", flush=True)


if __name__ == "__main__":
    main()
