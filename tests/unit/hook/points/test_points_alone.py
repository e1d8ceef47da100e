from __future__ import annotations

import multiprocessing.util
import os
import sys
import threading
import traceback
from concurrent import futures
from signal import Signals
from types import ModuleType
from typing import Any

import pytest

from mpwatch.hook.points import distributed, pools
from tests.unit.hook.conftest import POINTS


class Session:
    """The part of a session that these points use, with a clock that the test sets."""

    def __init__(self) -> None:
        self.now_ns = 1
        self.is_awake = False
        self.system = self
        self.os = os
        self.patcher = self
        self.prepared: Any = None
        self.gauges: dict[str, Any] = {}
        self.notes: list[dict[str, Any]] = []
        self.records: list[tuple[Any, ...]] = []

    def monotonic_ns(self) -> int:
        return self.now_ns

    def get_native_id(self) -> int:
        return 7

    def wake(self) -> None:
        self.is_awake = True

    def note(self, kind: str, **fields: Any) -> None:
        self.notes.append({"kind": kind, **fields})

    def drop_gauges(self, *names: str) -> None:
        for name in names:
            self.gauges.pop(name, None)

    def record(self, *fields: Any) -> None:
        self.records.append(fields)


def rendezvous(session: Any) -> tuple[Any, Any]:
    """A module whose store cannot be created on port 1, with the hook point set, and its undo."""
    module: Any = ModuleType("rendezvous")

    def create_store(port: int) -> str:
        if port == 1:
            raise RuntimeError("EADDRINUSE")
        return "store"

    module._create_c10d_store = create_store
    return module, POINTS["rendezvous store"].install(module, session)


def test_a_store_that_could_not_be_made_is_noted_once_nothing_followed() -> None:
    session = Session()
    module, undo = rendezvous(session)
    with pytest.raises(RuntimeError, match="EADDRINUSE"):
        module._create_c10d_store(1)
    session.gauges["rendezvous"]()
    assert session.notes == []

    session.now_ns += distributed.GRACE_NS + 1
    session.gauges["rendezvous"]()
    session.gauges["rendezvous"]()

    assert [(n["kind"], n["where"], n["text"]) for n in session.notes] == [
        ("exception", "rendezvous", "EADDRINUSE")
    ]
    undo()
    assert session.gauges == {}


def test_a_program_that_tries_the_next_port_has_no_failure() -> None:
    session = Session()
    module, _ = rendezvous(session)
    with pytest.raises(RuntimeError):
        module._create_c10d_store(1)
    assert module._create_c10d_store(2) == "store"

    session.now_ns += distributed.GRACE_NS + 1
    session.gauges["rendezvous"]()

    assert session.notes == []


def test_the_stack_that_initialises_cuda_is_noted_without_initialising_it() -> None:
    session: Any = Session()
    module: Any = ModuleType("torch.cuda")
    module._initialized = False
    module._queued_calls = []
    undo = POINTS["torch.cuda._queued_calls"].install(module, session)

    def first_use_of_cuda() -> None:
        for call, _ in module._queued_calls:
            call()

    first_use_of_cuda()

    assert session.notes[0]["kind"] == "cuda-init"
    assert session.notes[0]["frames"][0][0] == "first_use_of_cuda"
    undo()
    assert module._queued_calls == []


def test_without_cuda_in_use_no_gauge_is_read() -> None:
    session: Any = Session()
    module: Any = ModuleType("torch.cuda")
    module._initialized = False

    POINTS["cuda allocator gauge"].install(module, session)

    assert session.gauges["cuda"]() is None


def shared_memory(session: Any) -> tuple[Any, Any]:
    """A module whose blocks are memfds, with the hook point set, and its undo."""
    module: Any = ModuleType("shared_memory")

    class SharedMemory:
        def __init__(self, name: str | None = None, create: bool = False, size: int = 0) -> None:
            if create and not size:
                raise ValueError("'size' must be a positive number different from zero")
            self._fd = os.memfd_create("block")
            os.truncate(self._fd, size)

    module.SharedMemory = SharedMemory
    return module, POINTS["SharedMemory"].install(module, session)


def test_the_line_that_creates_a_block_of_shared_memory_is_noted() -> None:
    session = Session()
    session.now_ns = 10**12
    module, undo = shared_memory(session)

    blocks = [module.SharedMemory(create=True, size=4096), module.SharedMemory(None, True, 8192)]
    blocks += [module.SharedMemory("other"), module.SharedMemory(name="another", create=False)]

    found = [os.fstat(block._fd) for block in blocks]
    assert [(n["kind"], n["inode"], n["bytes"]) for n in session.notes] == [
        ("call-site", status.st_ino, status.st_size) for status in found[:2]
    ]
    assert all(n["site"].startswith("test_points_alone.py:") for n in session.notes)
    with pytest.raises(ValueError, match="positive number") as raised:
        module.SharedMemory(create=True)
    if sys.version_info >= (3, 11):  # tracebacks of 3.10 may show lines of wrappers
        assert not any("hook" in str(entry.path) for entry in raised.traceback[1:-1])
    wrapped = module.SharedMemory.__init__
    undo()
    assert module.SharedMemory.__init__ is wrapped.__wrapped__
    for block in blocks:
        os.close(block._fd)


def test_a_program_that_creates_many_blocks_is_sampled() -> None:
    session = Session()
    session.now_ns = 10**12
    module, undo = shared_memory(session)

    for _ in range(100):
        os.close(module.SharedMemory(create=True, size=1)._fd)

    assert len(session.notes) == 8
    undo()


class Wrapped:
    """As `ExceptionWithTraceback` of a pool's worker: it drops the traceback."""

    def __init__(self, exc: BaseException, tb: Any) -> None:
        self.text = f"{type(exc).__name__}: {exc}"
        exc.__traceback__ = None


def module_of_pools() -> Any:
    """A stand-in for `multiprocessing.pool`."""
    module: Any = ModuleType("multiprocessing.pool")
    module.ExceptionWithTraceback = type("ExceptionWithTraceback", (Wrapped,), dict(vars(Wrapped)))
    return module


def wrapped(module: Any, error: type[BaseException], text: str) -> Any:
    try:
        raise error(text)
    except error as raised:
        return module.ExceptionWithTraceback(raised, raised.__traceback__)


def test_failed_tasks_are_noted_with_their_line_and_how_many_there_were() -> None:
    session: Any = Session()
    module = module_of_pools()
    undo = POINTS["Pool tasks"].install(module, session)

    texts = [wrapped(module, ValueError, f"item {number}").text for number in range(9)]
    wrapped(module, TypeError, "other")

    assert texts == [f"ValueError: item {number}" for number in range(9)]
    told = [(n["type"], n["text"], n["count"]) for n in session.notes]
    assert told == [
        ("ValueError", "item 0", 1),
        ("ValueError", "item 1", 2),
        ("ValueError", "item 3", 4),
        ("ValueError", "item 7", 8),
        ("TypeError", "other", 1),
    ]
    assert session.notes[0]["where"] == "task"
    assert session.notes[0]["frames"][0][0] == "wrapped"
    undo()
    wrapped(module, ValueError, "unseen")
    assert len(session.notes) == 5


def test_failed_tasks_of_multiprocess_are_noted_by_a_hook_that_is_awake() -> None:
    session: Any = Session()
    module: Any = ModuleType("multiprocess.pool")
    with pytest.raises(AttributeError):
        POINTS["multiprocess tasks"].install(module, session)
    original = Wrapped.__init__
    module.ExceptionWithTraceback = type("Copied", (Wrapped,), {"__init__": original})
    undo = POINTS["multiprocess tasks"].install(module, session)

    assert wrapped(module, ValueError, "item 7").text == "ValueError: item 7"
    assert session.is_awake
    ((where, text, frames),) = [(n["where"], n["text"], n["frames"]) for n in session.notes]
    assert (where, text, frames[0][0]) == ("task", "item 7", "wrapped")
    with pytest.raises(TypeError, match="argument"):
        module.ExceptionWithTraceback()
    undo()
    assert module.ExceptionWithTraceback.__init__ is original


def test_kinds_of_failed_tasks_that_a_process_counts_are_bounded() -> None:
    session: Any = Session()
    module = module_of_pools()
    POINTS["Pool tasks"].install(module, session)

    for number in range(200):
        wrapped(module, type(f"Error{number}", (Exception,), {}), "")

    assert len(session.notes) == pools.FAILURES_KEPT + 8


def test_wrapping_an_exception_with_wrong_arguments_fails_as_without_the_hook() -> None:
    session: Any = Session()
    module = module_of_pools()
    POINTS["Pool tasks"].install(module, session)

    with pytest.raises(TypeError, match="missing 2 required positional arguments") as raised:
        module.ExceptionWithTraceback()

    if sys.version_info >= (3, 11):
        assert [entry.name for entry in raised.traceback] == [
            "test_wrapping_an_exception_with_wrong_arguments_fails_as_without_the_hook"
        ]
    assert session.notes == []


def test_the_class_of_a_failed_tasks_exception_is_asked_for_its_name_as_often_as_without() -> None:
    asked: list[str] = []

    class Asked(type):
        def __getattribute__(cls, name: str) -> Any:
            asked.append(name)
            return super().__getattribute__(name)

    error = Asked("Named", (Exception,), {})("text")
    Wrapped(error, None)
    without = asked.copy()
    asked.clear()
    session: Any = Session()
    module = module_of_pools()
    POINTS["Pool tasks"].install(module, session)

    module.ExceptionWithTraceback(error, None)

    assert asked == without
    assert [(note["type"], note["text"]) for note in session.notes] == [("Named", "text")]


class Tasks:
    """A queue of the program, which counts how often it is asked for its length."""

    asked = 0

    def qsize(self) -> int:
        type(self).asked += 1
        return 0


class Crew:
    """Ends its workers by a method that has the name of a pool's."""

    def _terminate_pool(self, *_: Any) -> None:
        pass


def test_only_a_pool_of_multiprocessing_is_asked_for_its_tasks() -> None:
    session: Any = Session()
    POINTS["pools gauge"].install(multiprocessing.util, session)
    end = multiprocessing.util.Finalize(
        None, Crew()._terminate_pool, args=(Tasks(), None, None, [], None, {}), exitpriority=1
    )
    try:
        found = session.gauges["pools"]()
    finally:
        end.cancel()

    assert Tasks.asked == 0
    assert found is None


def test_a_signal_that_ends_a_child_is_noted_with_its_line() -> None:
    session: Any = Session()
    module: Any = ModuleType("popen_fork")
    sent: list[tuple[int, int]] = []

    class Popen:
        def __init__(self, pid: int, returncode: int | None = None) -> None:
            self.pid, self.returncode = pid, returncode

        def _send_signal(self, sig: int) -> None:
            if self.pid == 1:
                raise PermissionError(1, "Operation not permitted")
            sent.append((self.pid, sig))

    module.Popen = Popen
    original = Popen.__dict__["_send_signal"]
    undo = POINTS["signals to children"].install(module, session)

    Popen(12)._send_signal(Signals.SIGKILL)
    Popen(12)._send_signal(sig=Signals.SIGTERM)
    Popen(12, returncode=0)._send_signal(Signals.SIGKILL)
    Popen(13)._send_signal(Signals.SIGUSR1)
    with pytest.raises(PermissionError) as raised:
        Popen(1)._send_signal(9)

    assert [number for _, number in sent] == [9, 15, 9, Signals.SIGUSR1]
    assert [(n["kind"], n["pid"], n["signal"]) for n in session.notes] == [
        ("kill", 12, 9),
        ("kill", 12, 15),
    ]
    assert session.notes[0]["site"].startswith("test_points_alone.py:")
    assert [entry.name for entry in raised.traceback][1:] == ["_send_signal"]
    undo()
    assert Popen.__dict__["_send_signal"] is original


def test_an_exception_of_a_call_in_a_thread_is_noted_if_nothing_asks_for_it() -> None:
    session: Any = Session()
    before = futures._base.Future.set_exception
    undo = POINTS["thread pool tasks"].install(futures._base, session)
    is_asked = threading.Event()

    def fail(wait: bool) -> None:
        if wait:
            is_asked.wait(20)
        raise KeyError("ts")

    try:
        with futures.ThreadPoolExecutor(1) as pool:
            futures.wait([pool.submit(fail, True)], timeout=0)
            is_asked.set()
            pool.submit(print).result()
            (unread,) = session.notes

            is_asked.clear()
            asked = pool.submit(fail, True)
            asked.add_done_callback(lambda future: None)
            is_asked.set()
            pool.submit(print).result()
            futures.Future().set_exception(exception=KeyError("of the program"))
    finally:
        undo()

    assert (unread["where"], unread["type"], unread["pool"]) == ("task", "KeyError", "threads")
    assert unread["frames"][0][0] == "fail"
    *above, last = [entry.name for entry in traceback_of(asked)]
    assert (set(above), last) == ({"run"}, "fail")  # twice "run" from Python 3.14 on
    assert len(session.notes) == 1
    assert futures._base.Future.set_exception is before


def traceback_of(future: Any) -> list[Any]:
    return list(traceback.extract_tb(future.exception().__traceback__))


def test_a_future_that_refuses_an_exception_does_so_as_without_the_hook() -> None:
    session: Any = Session()
    undo = POINTS["thread pool tasks"].install(futures._base, session)
    done: futures.Future[None] = futures.Future()
    done.set_result(None)
    try:
        with pytest.raises(futures.InvalidStateError) as raised:
            done.set_exception(KeyError("late"))
    finally:
        undo()

    assert [entry.name for entry in raised.traceback][1:] == ["set_exception"]
    assert str(raised.traceback[-1].path).endswith("_base.py")
