from __future__ import annotations

import contextlib
import errno
import gc
import json
import os
import posix
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import GeneratorType, ModuleType
from typing import Any

import pytest

from mpwatch.hook import wire
from mpwatch.hook.checks import errno_location, fork_risks
from mpwatch.hook.checks.fork_risks import note_risks
from mpwatch.hook.lifecycle.fork import ForkSteps, counts_late, shielded, wrap_single_threaded
from mpwatch.hook.session import Session
from mpwatch.hook.transport.server import Server

LATE, EARLY = (3, 13, 5), (3, 14, 1)


class Thread(Server):
    """A server without a thread: how often that was started and stopped."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.starts = 0
        self.stops = 0

    def start(self) -> None:
        self.starts += 1

    def stop(self) -> bool:
        self.stops += 1
        return True


@pytest.fixture
def session(session: Session) -> Session:
    session.state = "on"
    return session


@pytest.fixture
def thread(session: Session, monkeypatch: pytest.MonkeyPatch) -> Thread:
    thread = Thread(session)
    monkeypatch.setattr(session, "server", thread)
    return thread


def _is_shield(thing: object) -> bool:
    """Whether it is one of the generators behind a shielded function."""
    return type(thing) is GeneratorType and thing.__qualname__.startswith("shielded")


def fork(forks: ForkSteps, session: Session, threads: int | None) -> None:
    """Call what the interpreter calls in the parent at a fork, with so many threads afterwards."""
    forks.before(session)
    forks.threads = threads
    forks.after_in_parent(session)


def in_another_thread(step: Callable[[Any], None], session: Session) -> None:
    other = threading.Thread(target=step, args=(session,))
    other.start()
    other.join()


def test_a_call_without_the_thread_ends_while_another_thread_forks(
    session: Session, thread: Thread
) -> None:
    forks = ForkSteps(EARLY)
    forks.begin_call(session)
    in_another_thread(forks.before, session)

    forks.end_call(session)
    assert thread.starts == 0, "the thread would be there as the other one forks"


def test_a_fork_ends_while_another_thread_is_in_a_call_without_the_thread(
    session: Session, thread: Thread
) -> None:
    forks = ForkSteps(EARLY)
    begun, may_end = threading.Event(), threading.Event()

    def call() -> None:
        forks.begin_call(session)
        begun.set()
        assert may_end.wait(30)
        forks.end_call(session)

    other = threading.Thread(target=call)
    other.start()
    assert begun.wait(30)
    fork(forks, session, 1)
    assert thread.starts == 0, "the thread would open descriptors during the call"

    may_end.set()
    other.join()
    assert thread.starts == 1


@pytest.fixture
def sigusr1_raises() -> Iterator[None]:
    """SIGUSR1 raises TimeoutError, by a handler of the program."""

    def handler(*_: object) -> None:
        raise TimeoutError("of the program")

    before = signal.signal(signal.SIGUSR1, handler)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("sigusr1_raises")
def test_a_signal_handler_that_raises_before_a_call_leaves_the_hook_at_work(
    session: Session, thread: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.forks = ForkSteps(EARLY)
    closed: list[int] = []

    def strikes() -> None:
        os.kill(os.getpid(), signal.SIGUSR1)

    monkeypatch.setattr(thread, "stop_for_fork", strikes)
    with pytest.raises(TimeoutError, match="of the program"):
        wrap_single_threaded(closed.append, session)(3)

    assert closed == []
    assert thread.starts == 1


@pytest.mark.usefixtures("sigusr1_raises")
def test_a_signal_handler_that_raises_after_a_call_leaves_the_hook_at_work(
    session: Session, thread: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.forks = ForkSteps(EARLY)
    closed: list[int] = []
    starts: list[int] = []

    def start() -> None:
        starts.append(len(closed))
        if len(starts) == 1:
            os.kill(os.getpid(), signal.SIGUSR1)

    monkeypatch.setattr(thread, "start", start)
    with pytest.raises(TimeoutError, match="of the program"):
        wrap_single_threaded(closed.append, session)(3)

    assert closed == [3]
    assert starts == [1, 1], "what was struck is done once more"


@pytest.mark.parametrize("is_child", [False, True])
def test_a_signal_during_a_fork_is_delivered_again_in_the_parent_only(
    session: Session, thread: Thread, monkeypatch: pytest.MonkeyPatch, is_child: bool
) -> None:
    registered: list[Callable[[], object]] = []
    handled: list[int] = []

    def register(**functions: Callable[[], object]) -> None:
        if list(functions) == ["after_in_parent"]:
            registered.append(functions["after_in_parent"])

    def handler(number: int, _frame: object) -> None:
        handled.append(number)
        raise TimeoutError

    monkeypatch.setattr(posix, "register_at_fork", register)
    forks = ForkSteps(EARLY)
    forks.session = session
    forks.register()
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(TimeoutError) as struck:
            os.kill(os.getpid(), signal.SIGUSR1)
        forks.caught(lambda _session: None, struck.value)
        if is_child:
            session.server = Server(session)
            forks.after_in_child(session)
        # At the end of the fork, or of the first one that the child makes itself.
        with contextlib.suppress(TimeoutError):
            for deliver in registered:
                deliver()
    finally:
        signal.signal(signal.SIGUSR1, before)

    assert handled == [signal.SIGUSR1] * (1 if is_child else 2)


def test_what_the_hook_itself_cannot_do_before_a_call_does_not_reach_the_program(
    session: Session, thread: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.forks = ForkSteps(EARLY)
    closed: list[int] = []

    def fails() -> None:
        raise MemoryError

    monkeypatch.setattr(thread, "stop_for_fork", fails)
    wrap_single_threaded(closed.append, session)(3)

    assert closed == [3]
    assert thread.starts == 1
    assert "MemoryError" in str(list(session.problems))


@pytest.mark.parametrize(
    ("version", "is_late"),
    [
        ((3, 11, 9), False),
        ((3, 12, 0), True),
        ((3, 13, 5), True),
        ((3, 14, 0), True),
        ((3, 14, 1), False),
        ((3, 15, 0), False),
    ],
)
def test_versions_that_count_threads_after_the_fork_functions_are_known(
    version: tuple[int, ...], is_late: bool
) -> None:
    assert counts_late(version) is is_late


def test_where_threads_are_counted_late_the_thread_waits_for_the_next_record(
    session: Session, thread: Thread
) -> None:
    session.record(wire.QUEUE_PUT, 0)
    fork(ForkSteps(LATE), session, threads=1)
    assert thread.starts == 0

    session.record(wire.QUEUE_PUT, 0)
    session.record(wire.QUEUE_PUT, 0)

    assert thread.starts == 1


def test_the_record_of_a_second_fork_does_not_start_the_thread(
    session: Session, thread: Thread
) -> None:
    forks = ForkSteps(LATE)
    fork(forks, session, threads=1)
    fork(forks, session, threads=1)
    assert (thread.starts, thread.stops) == (0, 2)

    session.record(wire.QUEUE_PUT, 0)

    assert thread.starts == 1


def test_a_fork_step_repeated_after_an_exception_does_not_start_the_thread(
    session: Session, thread: Thread
) -> None:
    forks = ForkSteps(LATE)
    fork(forks, session, threads=1)
    forks.after_in_parent(session)
    assert thread.starts == 0

    session.record(wire.QUEUE_PUT, 0)

    assert thread.starts == 1


def test_resuming_the_hook_starts_the_delayed_thread(session: Session, thread: Thread) -> None:
    fork(ForkSteps(LATE), session, threads=1)

    session.server.resume()
    session.server.resume()

    assert thread.starts == 1


@pytest.mark.parametrize(("version", "threads"), [(EARLY, 1), (LATE, 2), (LATE, None)])
def test_the_thread_starts_within_the_fork_if_threads_are_not_counted_afterwards(
    session: Session, thread: Thread, version: tuple[int, ...], threads: int | None
) -> None:
    fork(ForkSteps(version), session, threads)

    assert thread.starts == 1


def test_fork_functions_without_a_session_do_nothing(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[object] = []
    steps: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    forks = ForkSteps()
    forks.session = session
    function: Any = shielded(steps.append, forks)
    function()
    references = [weakref.ref(each) for each in gc.get_objects() if _is_shield(each)]
    assert len(references) > 0
    assert steps == [session]

    del function
    gc.collect()

    assert [reference() for reference in references] == [None] * len(references)
    assert said == []


def test_the_reason_why_a_fork_failed_is_left_for_python_to_read(
    session: Session, thread: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    forks = ForkSteps((3, 10, 13))
    location = errno_location.find()

    def start() -> None:
        location().contents.value = errno.EINVAL

    monkeypatch.setattr(thread, "start", start)
    forks.before(session)
    location().contents.value = errno.EAGAIN
    forks.after_in_parent(session)

    assert location().contents.value == errno.EAGAIN


def test_a_child_without_a_ring_writes_nothing_into_the_ring_of_its_parent(
    session: Session, thread: Thread, tmp_path: Path
) -> None:
    path = tmp_path / "ring"
    session.ring.open_file(str(path), 1, 1)
    forks = ForkSteps()

    forks.before(session)
    session.record(wire.CUDA_INIT, 0)
    held = path.read_bytes()[wire.HEADER_BYTES :]
    forks.after_in_parent(session)

    assert not any(held)
    rows = wire.RECORD.iter_unpack(path.read_bytes()[wire.HEADER_BYTES :])
    assert [row[2] for row in rows if row[0]] == [wire.CUDA_INIT, wire.FORKED]


def test_a_child_counts_its_own_records_from_the_first(session: Session, thread: Thread) -> None:
    session.record(wire.QUEUE_PUT, 0)
    forks = ForkSteps()

    forks.before(session)
    session.server = Server(session)
    forks.after_in_child(session)

    assert session.ring.handed_out() == 0
    assert not session.ring.is_written(0)


def test_an_interpreter_of_3_10_without_ctypes_gets_the_hook(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "ctypes", None)

    assert ForkSteps((3, 10, 13)).session is None


def test_threads_and_library_pools_at_a_fork_are_noted(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch: Any = ModuleType("torch")
    torch.get_num_threads = lambda: 6
    cuda: Any = ModuleType("torch.cuda")
    cuda._initialized = True
    for name, module in (("torch", torch), ("torch.cuda", cuda), ("lmdb", ModuleType("lmdb"))):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    note_risks(session, 4, set())

    ((_, data),) = session.notes.since(0)
    note = json.loads(data)
    assert (note["threads"], note["torch_threads"], note["omp_num_threads"]) == (4, 6, "3")
    assert (note["cuda"], "lmdb" in note["libraries"]) == (True, True)


def test_threads_that_only_differ_in_their_numbers_are_one_risk(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: set[int] = set()
    for number in range(200):
        names = [f"Thread-{number} (work)", "QueueFeederThread"][: 1 + number % 2]
        monkeypatch.setattr(fork_risks, "python_threads", lambda names=names: names)
        note_risks(session, 2, noted)

    assert [json.loads(data)["kind"] for _, data in session.notes.since(0)] == ["fork", "fork"]
    noted.clear()
    note_risks(session, 2, noted)
    assert len(session.notes.since(0)) == 3


def test_a_program_of_ever_new_risks_does_not_fill_its_notes_with_them(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: set[int] = set()
    for number in range(200):
        monkeypatch.setattr(fork_risks, "python_threads", lambda number=number: ["x" * number])
        note_risks(session, 2, noted)

    assert len(session.notes.since(0)) <= fork_risks.NOTED


def test_naming_native_threads_leaves_no_descriptor_open(session: Session) -> None:
    """The files of the threads are opened in the parent at a fork, which a child would inherit."""
    done = threading.Event()
    others = [threading.Thread(target=done.wait) for _ in range(3)]
    for each in others:
        each.start()
    before = os.listdir("/proc/self/fd")
    try:
        names = fork_risks.native_threads(session)
    finally:
        done.set()
        for each in others:
            each.join()

    assert len(names) >= 3
    assert os.listdir("/proc/self/fd") == before


def test_a_file_that_the_program_has_opened_in_place_of_a_threads_stays_open(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It closes descriptors that it does not know, in another thread, while a name is read."""
    own: list[int] = []
    genuine = session.system.os

    class Replacing:
        def __getattr__(self, name: str) -> Any:
            return getattr(genuine, name)

        def read(self, fd: int, size: int) -> bytes:
            data = genuine.read(fd, size)
            null = genuine.open("/dev/null", genuine.O_RDONLY)
            genuine.dup2(null, fd)
            genuine.close(null)
            own.append(fd)
            return bytes(data)

    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()
    monkeypatch.setattr(session.system, "os", Replacing())
    try:
        fork_risks.native_threads(session)
        assert own
        assert {os.readlink(f"/proc/self/fd/{fd}") for fd in own} == {"/dev/null"}
    finally:
        monkeypatch.undo()
        done.set()
        other.join()
        for fd in own:
            os.close(fd)
