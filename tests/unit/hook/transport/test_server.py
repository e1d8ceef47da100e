from __future__ import annotations

import contextlib
import functools
import itertools
import os
import signal
import socket
import stat
import sys
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mpwatch import hook
from mpwatch.collect.hook import decode
from mpwatch.hook import wire
from mpwatch.hook.session import Session
from mpwatch.hook.transport import runtime_dir, server
from mpwatch.hook.transport.server import STOP_S
from tests.builders.clock import NanosecondClock


def test_a_fork_waits_a_bounded_time_for_a_thread_that_does_not_end(
    session: Session, tmp_path: Path
) -> None:
    session.server.listen(str(tmp_path / "s"))
    clock = NanosecondClock()
    session.system.monotonic_ns, session.system.sleep = clock, clock.sleep
    session.system.start_new_thread = lambda function, arguments: 0  # it never ends
    session.server.start()

    assert session.server.stop() is False
    assert STOP_S <= (clock.now_ns - 10**12) / 1e9 < STOP_S + 0.001

    # A disk blocks it: the forks that follow do not wait for it again.
    waited_ns = clock.now_ns
    assert session.server.stop() is False
    assert clock.now_ns == waited_ns


def mask_of_this_thread() -> set[int]:
    return set(signal.pthread_sigmask(signal.SIG_BLOCK, ()))


@pytest.mark.skipif(
    sys.version_info < (3, 11), reason="Python 3.10 may raise before a mask is restored"
)
@pytest.mark.parametrize("error", [None, RuntimeError("no thread"), KeyboardInterrupt()])
def test_the_thread_is_started_with_all_signals_blocked(
    session: Session, tmp_path: Path, error: BaseException | None
) -> None:
    started_with = []

    def start(function: object, arguments: object) -> int:
        started_with.append(mask_of_this_thread())
        if error is not None:
            raise error
        return 0

    session.server.listen(str(tmp_path / "s"))
    session.system.start_new_thread = start
    before = mask_of_this_thread()
    with contextlib.suppress(KeyboardInterrupt):
        session.server.start()

    (mask,) = started_with
    assert {signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1} <= mask - before
    assert mask_of_this_thread() == before


def test_the_thread_can_be_started_after_a_signal_handler_has_prevented_it(
    session: Session, tmp_path: Path
) -> None:
    started = []

    def start(function: object, arguments: object) -> int:
        started.append(function)
        if len(started) == 1:
            raise KeyboardInterrupt
        return 0

    session.server.listen(str(tmp_path / "s"))
    session.system.start_new_thread = start
    with pytest.raises(KeyboardInterrupt):
        session.server.start()
    session.server.start()
    session.server.start()  # it runs: nothing more is started

    assert len(started) == 2


def test_who_attaches_the_hook_again_gets_the_thread_that_was_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program may have raised its limit of threads since, and records nothing meanwhile."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    def refuse(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    hook.instrument()
    try:
        session = hook.current()
        assert session is not None
        system = session.system
        assert session.server.stop()
        start, now = system.start_new_thread, system.monotonic_ns
        system.start_new_thread = refuse
        session.server.start()
        assert not is_answered(session, 0.1)
        system.start_new_thread = start
        system.monotonic_ns = lambda: now() + 2 * server.AGAIN_NS

        hook.instrument()

        assert is_answered(session, 60.0)
    finally:
        hook.uninstrument()


def is_answered(session: Session, within_s: float) -> bool:
    """Whether the hook's thread runs: it says hello to an observer."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(within_s)
        client.connect(str(session.server.path))
        try:
            return bool(client.recv(1))
        except TimeoutError:
            return False


class LateThread:
    """The next thread of a hook: the machine is too busy to run it while it is waited for."""

    def __init__(self, session: Session) -> None:
        assert session.server.stop()
        seconds = itertools.count(0, 10**9)
        session.system.monotonic_ns = lambda: next(seconds)
        session.system.start_new_thread = self._start
        self._run: Callable[[], object] | None = None

    def _start(self, function: Callable[..., object], arguments: tuple[object, ...]) -> int:
        self._run = functools.partial(function, *arguments)
        return 0

    def run(self) -> None:
        assert self._run is not None
        with ThreadPoolExecutor(1) as threads:
            assert threads.submit(self._run).result() is None
        self._run = None


@pytest.fixture
def on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the hook's files, which counts as one on a disk."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(server, "STOP_S", 60.0)
    monkeypatch.setattr(runtime_dir, "mount_of", lambda *_: (b"ext4", tmp_path.stat().st_dev))
    return tmp_path / "mpwatch"


def attached(started_by: str) -> Session:
    """A hook without points whose thread has made its files."""
    session = Session(started_by)
    session.enter(())
    session.server.wait_for_opening(60.0)
    assert session.server.path is not None
    return session


def test_a_thread_that_runs_first_after_its_session_is_gone_removes_its_files(
    on_disk: Path,
) -> None:
    session = attached("instrument")
    thread = LateThread(session)
    assert list(on_disk.iterdir()) != []
    gone = weakref.ref(session)
    session.leave("uninstrument")
    del session

    thread.run()
    assert list(on_disk.iterdir()) == []
    assert gone() is None


def test_a_late_thread_leaves_the_files_of_the_hook_that_was_attached_meanwhile(
    on_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = attached("instrument")
    thread = LateThread(before)
    before.leave("uninstrument")
    after = attached("attach")
    monkeypatch.setitem(sys.modules, hook.RENDEZVOUS, SimpleNamespace(current=lambda: after))
    try:
        files = list(on_disk.iterdir())

        thread.run()
        assert set(files) <= set(on_disk.iterdir())
    finally:
        after.leave("test")
    assert list(on_disk.iterdir()) == []


def test_an_observer_that_connects_as_the_process_ends_is_reported_what_there_is(
    on_disk: Path,
) -> None:
    session = attached("run")
    thread = LateThread(session)
    session.server.start()
    with socket.socket(socket.AF_UNIX) as observer:
        observer.connect(str(session.server.path))
        session.note("thread-died", text="x")
        session.files.is_ending = True
        assert not session.server.stop()
        thread.run()
        session.server.close("exit")
        received = b"".join(iter(lambda: observer.recv(65_536), b""))

    frames: list[tuple[int, bytes]] = []
    position = 0
    while (frame := decode.frame(received, position)) is not None:
        kind, payload, position = frame
        frames.append((kind, payload))
    assert [kind for kind, _ in frames] == [wire.HELLO, wire.NOTE, wire.GOODBYE]
    assert b"thread-died" in frames[1][1]
    assert list(on_disk.iterdir()) == []


class Swapping:
    """A stand-in for `os`: as soon as the socket is there, a link takes its place."""

    def __init__(self, path: Path, elsewhere: Path) -> None:
        self.path, self.elsewhere = path, elsewhere

    def __getattr__(self, name: str) -> Any:
        if self.path.is_socket() and name == "chmod":
            self.path.unlink()
            self.path.symlink_to(self.elsewhere)
        return getattr(os, name)


def test_the_socket_is_for_its_user_only_and_no_other_file_changes(
    session: Session, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.touch()
    elsewhere.chmod(0o644)
    session.system.os = Swapping(tmp_path / "s", elsewhere)
    before = os.umask(0)
    try:
        session.server.listen(str(tmp_path / "s"))
    finally:
        os.umask(before)

    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o644
    assert stat.S_IMODE((tmp_path / "s").lstat().st_mode) == 0o600
