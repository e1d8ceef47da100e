"""Cases whose output must not depend on the hook: `hook_same.py with|without CASE...`.

Every case prints what it observes; children print through `say` so that lines are not mixed.
Nothing here needs torch.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import multiprocessing
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterator
from typing import Any


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def show(error: BaseException) -> None:
    """Print all that a user can see of an exception."""
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    say("".join(lines), end_of(error.__cause__), end_of(error.__context__))


def end_of(error: BaseException | None) -> str:
    return f"<{type(error).__name__} {error}>"


def attempt(what: Any, *arguments: Any) -> None:
    try:
        say("result", what(*arguments))
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is shown
        show(error)


class Broken:
    """Cannot be pickled; the exception has a cause."""

    def __reduce__(self) -> Any:
        try:
            raise KeyError("the reason")
        except KeyError as reason:
            raise ValueError("cannot be sent") from reason


class Alarm(Exception):
    pass


def on_alarm(*_: object) -> None:
    raise Alarm("from a handler")


def context(method: str = "fork") -> Any:
    return multiprocessing.get_context(method)


def queues() -> None:
    fifo, simple = context().Queue(1), context().SimpleQueue()
    attempt(fifo.get, True, 0.01)
    attempt(fifo.get_nowait)
    fifo.put(1)
    attempt(fifo.put, 2, True, 0.01)
    attempt(fifo.get)
    attempt(simple.put, Broken())
    attempt(fifo.get, 1, 2, 3, 4)
    fifo.close()
    attempt(fifo.put, 1)
    joinable = context().JoinableQueue()
    attempt(joinable.task_done)
    attempt(isinstance, queue.Empty(), Exception)


def answers(fifo: Any) -> Any:
    """A generator that handles an exception of its own while others are raised through it."""
    try:
        raise KeyError("first")
    except KeyError:
        for timeout in (None, 0.001):
            try:
                yield fifo.get(timeout is not None, timeout)
            except queue.Empty as error:
                yield error
        say("at", end_of(sys.exc_info()[1]))
        fifo.get(False)


async def awaited(fifo: Any) -> None:
    try:
        fifo.get(False)
    finally:
        fifo.get(1, 2, 3, 4)


class Asks:
    """Reads an empty queue when it is freed, also at the interpreter's exit."""

    def __init__(self, fifo: Any) -> None:
        self.fifo = fifo

    def __del__(self) -> None:
        self.fifo.get(False)


def passing() -> None:
    """Exceptions while others are handled: in generators, coroutines, threads and finalizers."""
    fifo = context().Queue()
    try:
        raise KeyError("outer")
    except KeyError as outer:
        several = answers(fifo)
        for _ in range(2):
            show(next(several))
        attempt(next, several)
        attempt(awaited(fifo).send, None)
        thread = threading.Thread(target=attempt, args=(fifo.get, False))
        thread.start()
        thread.join()
        say("at", end_of(sys.exc_info()[1]), sys.exc_info()[1] is outer)
        show(outer)
    try:
        fifo.get(False)
    except queue.Empty as error:
        say("handled", sys.exc_info()[2] is error.__traceback__)
    Asks(fifo)
    globals()["last"] = Asks(fifo)


def many() -> None:
    """Thousands of exceptions, some interrupted by a signal, keep no references."""
    struck = 0
    fifo = context().Queue()
    for _ in range(20_000):
        with contextlib.suppress(queue.Empty):
            fifo.get(False)
    signal.signal(signal.SIGALRM, on_alarm)
    while struck < 300:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0001 + struck % 50 * 1e-6)
            while True:
                with contextlib.suppress(queue.Empty):
                    fifo.get(False)
        except Alarm:
            struck += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    gc.collect()
    left = [each for each in gc.get_objects() if isinstance(each, queue.Empty | Alarm)]
    say("struck", struck, "left", len(left), sys.exc_info())


def opened() -> Iterator[str]:
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            yield os.readlink(f"/proc/self/fd/{fd}")


def kept_open() -> list[str]:
    return [path for path in opened() if path.endswith((".notes", "/comm", "/stat"))]


def put_in_vain(fifo: Any, until_s: float) -> None:
    """Put into a closed queue until an alarm; a function of its own, because not every `try` has a
    backward jump."""
    ends_s = time.monotonic() + 5
    signal.setitimer(signal.ITIMER_REAL, until_s)
    while time.monotonic() < ends_s:
        with contextlib.suppress(ValueError):
            fifo.put(1)


def kinds() -> None:
    """Handlers that raise many types of exceptions: each reaches main, and no file stays open."""
    fifo = context().Queue()
    fifo.close()
    for kind in (TimeoutError, FileNotFoundError, RuntimeError, KeyError, IndexError, TypeError):

        def handler(*_: object, kind: Any = kind) -> None:
            raise kind("struck")

        signal.signal(signal.SIGALRM, handler)
        struck = 0
        for number in range(150):
            try:
                put_in_vain(fifo, 0.00005 + number * 2e-6)
            except kind:
                struck += 1
        say(kind, struck)
    # The hook's own thread may be writing the last notes at this time.
    ends_s = time.monotonic() + 5
    while (left := kept_open()) and time.monotonic() < ends_s:
        time.sleep(0.01)
    say("files", left)


def interrupted() -> None:
    """A handler raises while the main thread waits in a wrapper; the lock is released."""
    signal.signal(signal.SIGALRM, on_alarm)
    fifo = context().Queue()
    for handler in (on_alarm, signal.default_int_handler):
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.5)  # main waits by then, also on a busy machine
        attempt(fifo.get)
    fifo.put("after")
    attempt(fifo.get)


def starting() -> None:
    """Children that cannot be started or joined, or that are used in the wrong process."""
    attempt(context("spawn").Process(target=lambda: None).start)
    attempt(context("spawn").Process(target=print, args=(Broken(),)).start)
    process = context().Process(target=os.getpid)
    attempt(process.join)
    process.start()
    attempt(process.start)
    process.join()
    attempt(process.join, "soon")
    say("code", process.exitcode)


def fail(text: str) -> None:
    try:
        raise KeyError("the reason")
    except KeyError as reason:
        raise RuntimeError(text) from reason


def put_on(fifo: Any) -> None:
    while True:
        fifo.put(bytes(100))


def putting() -> None:
    """Exit while a thread of the process still puts."""
    fifo = context().Queue()
    fifo.cancel_join_thread()
    threading.Thread(target=put_on, args=(fifo,), daemon=True).start()
    fifo.get()
    sys.exit(6)


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


ENDS: dict[str, Any] = {
    "returns": int,
    "exits": functools.partial(sys.exit, 3),
    "says": functools.partial(sys.exit, "a last word"),
    "leaves": functools.partial(os._exit, 4),
    "fails": functools.partial(fail, "in the child"),
    "interrupts": functools.partial(signal.raise_signal, signal.SIGINT),
    "dies": kill_self,
    "puts": putting,
}


def ends() -> None:
    """Every way for a child to exit, its exit code and its output."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for method in ("fork", "spawn", "forkserver"):
        for name, target in ENDS.items():
            process = context(method).Process(target=target, name="child", daemon=name == "puts")
            process.start()
            process.join(60)
            say(method, name, process.exitcode)


def pools() -> None:
    with context().Pool(2) as pool:
        attempt(pool.map, abs, [-1, 2, -3])
        attempt(pool.apply, fail, ("in the pool",))


def forks() -> None:
    """Plain forks with one thread and with two, with all warnings shown with their lines."""
    warnings.simplefilter("always")
    door = threading.Event()
    for threads in (0, 1):
        if threads:
            threading.Thread(target=door.wait).start()
        pid = os.fork()
        if pid == 0:
            os._exit(5)
        say("forked", os.waitpid(pid, 0)[1])
    with_pty, fd = os.forkpty()
    if with_pty == 0:
        os._exit(5)
    say("forked", os.waitpid(with_pty, 0)[1])
    os.close(fd)
    door.set()


def fork_errors() -> None:
    """The same with warnings as errors: the fork has happened, and the parent raises."""
    warnings.simplefilter("error")
    door = threading.Event()
    threading.Thread(target=door.wait).start()
    try:
        pid = os.fork()
        if pid == 0:
            os._exit(5)
        say("forked", os.waitpid(pid, 0)[1])
    except DeprecationWarning as error:
        show(error)
        say("reaped", os.wait()[1])
    door.set()


def registered() -> None:
    """The program's own fork functions run in their order, and their exceptions are shown."""
    told: list[str] = []
    for name in ("first", "second"):
        os.register_at_fork(
            before=functools.partial(told.append, f"before {name}"),
            after_in_parent=functools.partial(told.append, f"parent {name}"),
            after_in_child=functools.partial(told.append, f"child {name}"),
        )
    pid = os.fork()
    if pid == 0:
        say(*told)
        os._exit(0)
    os.waitpid(pid, 0)
    say(*told)


def commands() -> None:
    """Other programs, started every way that `subprocess` has."""
    echo = [sys.executable, "-c", "import os; print(sorted(os.listdir('/proc/self/fd'), key=int))"]
    for options in ({}, {"close_fds": False}, {"preexec_fn": os.getpid}, {"start_new_session": 1}):
        done = subprocess.run(echo, capture_output=True, text=True, check=False, **options)
        say(done.returncode, done.stdout, done.stderr)
    with os.popen("echo from a shell") as shell:
        say(shell.read())


def crash() -> None:
    """A crash that faulthandler reports: the stacks that it prints are the program's own."""
    import faulthandler

    faulthandler.enable(file=1, all_threads=True)
    pid = os.fork()
    if pid == 0:
        os.kill(os.getpid(), signal.SIGSEGV)
    say("crashed", os.waitpid(pid, 0)[1] & 0x7F)
    faulthandler.dump_traceback(file=1, all_threads=False)


def last_words() -> None:
    """Functions at exit run in their order after an exception that is not caught."""
    atexit.register(say, "at exit")
    threading.Thread(target=time.sleep, args=(0.1,)).start()
    fail("in main")


def quiet_end() -> None:
    """Main exits while its threads put into a queue that no process reads."""
    fifo = context().Queue()
    fifo.cancel_join_thread()
    threading.Thread(target=put_on, args=(fifo,), daemon=True).start()
    fifo.get()
    sys.exit(7)


def stuck_end() -> None:
    """Main exits while daemons run and children have to be joined."""
    say("started")
    context().Process(target=time.sleep, args=(60,), daemon=True).start()
    context().Process(target=time.sleep, args=(0.2,)).start()


def abrupt_end() -> None:
    fifo = context().Queue()
    fifo.put(1)
    say(fifo.get())
    os._exit(8)


class Config:
    """What a program passes to its own worker; a child finds its class only in the main module."""


class Method(str):
    pass


class Named(context("spawn").Process):  # type: ignore[misc]
    _start_method = Method("spawn")


def _worker_loop(*parts: object) -> None:
    say("worker loop", len(parts), [type(part).__name__ for part in parts[3:11:7]])


def namesakes() -> None:
    """Children whose targets have the names of torch's, or whose class has a method of its own."""
    for kind, numbers in ((context("spawn").Process, 11), (Named, 1)):
        config = Config()
        child = kind(target=_worker_loop, args=(*(config for _ in range(numbers)),))
        child.start()
        child.join()
        say("exit", child.exitcode)


def main() -> None:
    has_hook, *cases = sys.argv[1:]
    if has_hook == "with":
        import mpwatch

        assert mpwatch.instrument()
    for case in cases:
        say("case", case)
        globals()[case]()


if __name__ == "__main__":
    main()
