"""Detaching while an injection is under way: no hook arrives afterwards, or detach says so."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mpwatch.attach import attach_session
from mpwatch.attach.attach_session import AttachSession
from mpwatch.attach.inject import detach, inject
from mpwatch.attach.injection_log import InjectionLog
from mpwatch.cli.targets import LazySession
from tests.integration.attach.conftest import Running, Start
from tests.integration.attach.test_detach_verified import run_detach
from tests.integration.attach.test_kinds_of_targets import sample
from tests.integration.on_demand import cases
from tests.procfs import children, eventually, hook_threads, threads

pytestmark = pytest.mark.slow

# An audit hook that holds the thread of an injection at one event while a file is there.
HELD = """
import multiprocessing.util, os, sys, threading, time
main = threading.get_ident()
def hold(event, args):
    if event == {event!r} and threading.get_ident() != main and {text!r} in repr(args):
        if os.path.exists({file!r}): print("held", flush=True)
        while os.path.exists({file!r}): time.sleep(0.01)
sys.addaudithook(hold)
print("ready", flush=True)
while True: time.sleep(0.01)
"""
# In the order in which they come: the directory is opened, the payload and the loader are run, the
# hook has replaced functions, it is nearly done, it serves observers.
STEPS = {
    "opening": ("open", "/attach-"),
    "payload": ("exec", "<mpwatch payload>"),
    "loader": ("exec", "/path_loader.py"),
    "patched": ("exec", "/late_attach_scan.py"),
    "nearly done": ("exec", "/overhead.py"),
    "answering": ("open", "'.result'"),
}
# Each but one is tried by one of two tests; on demand all by both.
USUAL_REPORTED = ("opening", "patched", "answering")
USUAL_AWAITED = ("payload", "loader", "answering")


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.fixture
def held(start: Start, tmp_path: Path) -> Iterator[Callable[[str], Running]]:
    """Starts a program that is held at a step of the injection while `tmp_path/hold` is there."""
    file = tmp_path / "hold"

    def held(step: str) -> Running:
        event, text = STEPS[step]
        code = HELD.format(event=event, text=text, file=str(file))
        (tmp_path / "held.py").write_text(code)
        file.touch()
        return start(str(tmp_path / "held"))

    yield held
    file.unlink(missing_ok=True)


@contextmanager
def released_once_called_off(runtime: Path, file: Path) -> Iterator[None]:
    """Release the injection once its exchange directory is gone."""

    def release() -> None:
        eventually(lambda: not exchanges(runtime), 20)
        file.unlink()

    thread = threading.Thread(target=release)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def exchanges(runtime: Path) -> list[Path]:
    return list((runtime / "mpwatch").glob("attach-*"))


def has_no_thread_but_main(running: Running) -> bool:
    """Whether neither a hook nor an injection is in it any more."""
    return eventually(lambda: len(threads(running.pid)) == 1, 20)


@pytest.mark.parametrize("step", cases(STEPS, USUAL_REPORTED))
def test_an_injection_that_outlasts_a_detach_is_reported_and_leaves_no_hook(
    held: Callable[[str], Running], runtime: Path, tmp_path: Path, step: str
) -> None:
    running = held(step)
    timeout_s = 3.0 if step == "answering" else 0.1  # the answer is written while it is waited for
    assert inject(running.process, timeout_s=timeout_s).state == "pending"
    assert running.line() == "held"
    done = run_detach(running.pid)
    assert done.returncode == 4, done
    assert done.stdout.startswith(f"{running.pid}: an injection has begun in it"), done
    assert "An injection is still under way in 1 of 1 processes" in done.stderr
    assert detach(running.process, timeout_s=0.1).state == "pending"
    (tmp_path / "hold").unlink()
    assert has_no_thread_but_main(running)
    done = run_detach(running.pid)
    assert (done.returncode, done.stdout) == (0, f"{running.pid}: there is no hook in it\n")
    assert list((runtime / "mpwatch").iterdir()) == []


@pytest.mark.parametrize("step", cases(STEPS, USUAL_AWAITED))
def test_a_detach_waits_for_an_injection_that_has_begun(
    held: Callable[[str], Running],
    runtime: Path,
    tmp_path: Path,
    pool: ThreadPoolExecutor,
    step: str,
) -> None:
    running = held(step)
    injected = pool.submit(inject, running.process, timeout_s=20)
    assert running.line() == "held"
    with released_once_called_off(runtime, tmp_path / "hold"):
        done = run_detach(running.pid)
    is_detached = step == "answering"
    words = "the hook is detached" if is_detached else "the injection was called off"
    assert done.returncode == 0, done
    assert done.stdout.startswith(f"{running.pid}: {words}\n"), done
    assert has_no_thread_but_main(running)
    attached = injected.result()
    if not is_detached:
        assert (attached.state, attached.reason) == ("absent", "it was called off")


def test_a_session_that_ends_during_an_injection_leaves_no_hook(
    held: Callable[[str], Running],
    runtime: Path,
    tmp_path: Path,
    pool: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attach_session, "FINISH_S", 0.1)
    running = held("loader")
    session = AttachSession(running.process, log=InjectionLog(str(tmp_path / "log")))
    injecting = pool.submit(session.inject, [sample(running.pid)], lambda status: None)
    assert running.line() == "held"
    with released_once_called_off(runtime, tmp_path / "hold"):
        assert session.end() == "The injection into 1 process was called off."
    assert has_no_thread_but_main(running)
    injecting.result()
    log = Path(session.log.path).read_text().splitlines()
    results = {line.split()[1]: line.partition(" result=")[2] for line in log}
    assert results["detach"].startswith("detached ")
    assert results["inject"].startswith(('"absent: it was called off"', '"pending: '))


def test_a_session_waits_for_the_result_of_what_it_called_off(
    held: Callable[[str], Running],
    runtime: Path,
    tmp_path: Path,
    pool: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread that injects has its result 0.3 s after the detach."""
    monkeypatch.setattr(attach_session, "FINISH_S", 1.0)
    running = held("loader")
    session = AttachSession(running.process, log=InjectionLog(str(tmp_path / "log")))
    was_closed = threading.Event()
    close, write_result = session.log.close, session.log.injected

    def closed() -> None:
        close()
        was_closed.set()

    def injected(*line: Any) -> None:
        assert not was_closed.wait(0.3)
        write_result(*line)

    monkeypatch.setattr(session.log, "close", closed)
    monkeypatch.setattr(session.log, "injected", injected)
    injecting = pool.submit(session.inject, [sample(running.pid)], lambda status: None)
    assert running.line() == "held"
    with released_once_called_off(runtime, tmp_path / "hold"):
        session.end()
    injecting.result()
    log = Path(session.log.path).read_text()
    assert log.count(" inject ") == 1
    assert "no result" not in log


def test_a_detach_in_the_dashboard_stops_the_injection_of_its_session(
    start: Start, runtime: Path, pool: ThreadPoolExecutor
) -> None:
    """It is known of the job when it is asked for, and injects into all the others meanwhile."""
    running = start("attach_many", "children", "48")
    job = [sample(running.pid), *(sample(pid) for pid in children(running.pid))]
    session = LazySession(running.process, only=(), keeps=False)
    has_begun = threading.Event()
    injecting = pool.submit(session.inject, job, lambda status: has_begun.set())
    assert has_begun.wait(60)
    assert session.detach(job) == "The hook was detached from every process."
    injecting.result()
    with_hook = [each.process.pid for each in job if hook_threads(each.process.pid)]
    assert with_hook == []
    assert list((runtime / "mpwatch").iterdir()) == []
    session.inject(job[:1], lambda status: None)  # asked for again
    assert hook_threads(running.pid) == 1
    session.end()


@pytest.mark.parametrize("step", ["payload", "answering"])
def test_a_second_observer_waits_for_an_injection_that_has_begun(
    held: Callable[[str], Running], tmp_path: Path, pool: ThreadPoolExecutor, step: str
) -> None:
    running = held(step)
    first = pool.submit(inject, running.process, timeout_s=20)
    assert running.line() == "held"
    assert inject(running.process, timeout_s=0.3).state == "pending"
    (tmp_path / "hold").unlink()
    assert first.result().state == "ready"
    assert hook_threads(running.pid) == 1


def test_two_detaches_at_a_time_both_tell_the_truth(
    held: Callable[[str], Running], runtime: Path, tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    running = held("payload")
    (tmp_path / "hold").unlink()
    assert inject(running.process, timeout_s=20).state == "ready"
    shutil.rmtree(runtime / "mpwatch")  # it is then detached by its interpreter
    (tmp_path / "hold").touch()
    first = pool.submit(detach, running.process, timeout_s=20)
    assert running.line() == "held"
    assert detach(running.process, timeout_s=0.3).state == "pending"
    (tmp_path / "hold").unlink()
    assert first.result().state == "absent"
    assert has_no_thread_but_main(running)


# Imports a module with the name of one of the standard library, which takes as long as a file is
# there.
IMPORTING = """
import os, sys, threading, time
sys.path.insert(0, os.path.dirname(__file__))
threading.Thread(target=__import__, args=("zipapp",)).start()
time.sleep(0.1)
print("ready", flush=True)
while True: time.sleep(0.01)
"""
IMPORTED = """
import os, time
while os.path.exists({file!r}): time.sleep(0.01)
"""


def test_an_injection_that_waits_for_imports_can_be_called_off(
    start: Start, runtime: Path, tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    file = tmp_path / "hold"
    file.touch()
    (tmp_path / "importing.py").write_text(IMPORTING)
    (tmp_path / "zipapp.py").write_text(IMPORTED.format(file=str(file)))
    running = start(str(tmp_path / "importing"))
    injected: Future[object] = pool.submit(inject, running.process, timeout_s=20)
    try:
        assert eventually(lambda: any((each / "result").exists() for each in exchanges(runtime)))
        assert detach(running.process).state == "absent"
    finally:
        file.unlink()
    attached = injected.result()
    assert getattr(attached, "state", "") == "absent", attached
    assert has_no_thread_but_main(running)
