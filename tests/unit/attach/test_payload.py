from __future__ import annotations

import gc
import importlib
import importlib.machinery
import os
import signal
import sys
import time
import types
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from mpwatch.attach import hook_copy, packing, payload, stub

HOOK = hook_copy.installed()
SEEN = "open(parcel + '/{}', 'w').close()"


class WorkerDied(Exception):
    pass


@pytest.fixture
def parcel(tmp_path: Path) -> Path:
    folder = tmp_path / "parcel"
    folder.mkdir()
    (tmp_path / "hook").mkdir()
    (folder / "argument").write_text(f"load\n{tmp_path}/hook\n")
    return folder


@pytest.fixture
def raising_handler() -> Iterator[None]:
    def handler(_number: int, _frame: object) -> None:
        raise WorkerDied("worker 3 died")

    previous = signal.signal(signal.SIGUSR1, handler)
    yield
    signal.signal(signal.SIGUSR1, previous)


def compute_for(most_s: float) -> None:
    deadline_s = time.monotonic() + most_s
    while time.monotonic() < deadline_s:
        len("")


def hook(parcel: Path, body: str) -> None:
    head = "reason = ''\ndef load(directory, started_by, compiled=None):\n    global reason\n"
    text = f"{head}    {body}\n"
    (parcel.parent / "hook" / "stowaway.py").write_text(text)


def test_success_is_answered_with_done(parcel: Path) -> None:
    hook(parcel, "return object()")
    payload.run(str(parcel))
    assert (parcel / "result").read_text() == "done"


def test_a_hook_that_refuses_is_answered_with_its_reason(parcel: Path) -> None:
    hook(parcel, "reason = 'no room'; return None")
    payload.run(str(parcel))
    assert (parcel / "result").read_text() == "no room"


def test_an_error_is_answered_in_one_sentence_and_never_raised(parcel: Path) -> None:
    hook(parcel, "raise OSError('disk full')")
    payload.run(str(parcel))
    assert (parcel / "result").read_text() == "OSError: disk full"


def test_a_hook_that_cannot_be_read_is_answered_and_never_raised(parcel: Path) -> None:
    payload.run(str(parcel))
    assert "FileNotFoundError" in (parcel / "result").read_text()


def test_a_parcel_nobody_waits_for_is_removed_after_success(parcel: Path) -> None:
    hook(parcel, "return object()")
    (parcel / "unattended").touch()
    payload.run(str(parcel))
    assert not parcel.exists()


def test_an_exception_of_a_signal_handler_is_raised_in_the_program_afterwards(
    parcel: Path, raising_handler: None
) -> None:
    hook(parcel, "import os; os.kill(os.getpid(), 10); len(''); return object()")
    handler = signal.getsignal(signal.SIGINT)
    payload.run(str(parcel))
    assert "signal handler" in (parcel / "result").read_text()
    with pytest.raises(WorkerDied, match="worker 3 died"):
        compute_for(10.0)
    assert signal.getsignal(signal.SIGINT) is handler


def test_only_what_a_handler_raised_counts_as_foreign(raising_handler: None) -> None:
    with pytest.raises(WorkerDied) as raised:
        os.kill(os.getpid(), signal.SIGUSR1)
    assert payload.is_foreign(raised.value)
    assert payload.is_foreign(KeyboardInterrupt())
    assert not payload.is_foreign(OSError("ours"))


def test_the_stub_is_one_constant_text_that_binds_no_name_and_raises_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    folder = tmp_path / "mpwatch" / f"{stub.PARCEL_PREFIX}{os.getpid()}-{fields[19]}"
    folder.mkdir(parents=True)
    (folder / stub.PROGRAM_NAME).write_text("open(parcel + '/seen', 'w').close(); 1/0")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    namespace: dict[str, object] = {}
    exec(stub.SCRIPT, namespace)
    assert (folder / "seen").exists()
    assert set(namespace) == {"__builtins__"}
    assert len(stub.TEXT) < 1024
    assert stub.TEXT.endswith(b"\0")


@pytest.mark.parametrize(
    ("content", "is_taken"),
    [
        (packing.pack(HOOK, HOOK, SEEN.format("compiled")), True),
        (packing.pack(HOOK, HOOK, SEEN.format("compiled"))[:20], False),
        (b"\0\0\0\0" + packing.pack(HOOK, HOOK, SEEN.format("compiled"))[4:], False),
        (b"", False),
    ],
    ids=["whole", "cut off", "for another Python", "empty"],
)
def test_the_stub_takes_the_program_as_it_was_compiled_or_else_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, is_taken: bool
) -> None:
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    folder = tmp_path / "mpwatch" / f"{stub.PARCEL_PREFIX}{os.getpid()}-{fields[19]}"
    folder.mkdir(parents=True)
    (folder / stub.PROGRAM_NAME).write_text(SEEN.format("text"))
    (folder / stub.BUNDLE_NAME).write_bytes(content)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    exec(stub.SCRIPT, {})

    assert (folder / "compiled").exists() == is_taken
    assert (folder / "text").exists() != is_taken


# A module that has a parcel opened while it is imported, by the thread that imports it or another.
LOOKS = "import gc, seen\nseen.answers.append(seen.ask())\n"


@pytest.fixture
def importing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str, Callable[[], object]], object]]:
    """Imports a module of a name and returns what was answered while that was half done."""
    (tmp_path / "modules").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    seen: Any = types.ModuleType("seen")
    monkeypatch.setitem(sys.modules, "seen", seen)
    names = []

    def importing(name: str, ask: Callable[[], object]) -> object:
        seen.answers, seen.ask = [], ask
        (tmp_path / "modules" / f"{name}.py").write_text(LOOKS)
        sys.modules.pop(name, None)
        names.append(name)
        importlib.import_module(name)
        return seen.answers[0]

    yield importing
    for name in names:
        sys.modules.pop(name, None)


def on_another_thread(ask: Callable[[], object]) -> object:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(ask).result()


Importing = Callable[[str, Callable[[], object]], object]


def test_a_program_in_the_middle_of_an_import_is_asked_again_later(
    parcel: Path, importing: Importing
) -> None:
    def ask() -> str:
        payload.run(str(parcel))
        return (parcel / "result").read_text()

    assert importing("zipapp", ask) == payload.LATER
    assert ask() != payload.LATER


@pytest.mark.parametrize(("name", "is_so"), [("zipapp", True), ("their_package", False)])
def test_a_half_imported_module_counts_if_it_is_of_the_standard_library(
    importing: Importing, name: str, is_so: bool
) -> None:
    assert importing(name, payload.is_importing) is is_so
    assert importing(name, lambda: on_another_thread(payload.is_importing)) is is_so
    assert not payload.is_importing()


class Batch:
    """What a loop of the program holds."""


def test_nothing_of_the_program_is_held_on_to_until_garbage_is_collected() -> None:
    def loop() -> weakref.ref[Batch]:
        batch = Batch()
        payload.is_importing()
        return weakref.ref(batch)

    gc.disable()
    try:
        assert loop()() is None
    finally:
        gc.enable()


def test_an_import_on_a_greenlet_that_was_put_aside_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    half = types.ModuleType("zipapp")
    half.__spec__ = importlib.machinery.ModuleSpec("zipapp", None)
    half.__spec__._initializing = True  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "zipapp", half)
    monkeypatch.setitem(sys.modules, "greenlet", types.ModuleType("greenlet"))
    assert payload.is_importing()
    half.__spec__._initializing = False  # type: ignore[attr-defined]
    assert not payload.is_importing()


@pytest.mark.parametrize("is_enabled", [True, False])
def test_no_garbage_is_collected_meanwhile_and_afterwards_as_before(
    parcel: Path, is_enabled: bool
) -> None:
    hook(parcel, "import gc; global seen; seen = [[] for _ in range(100_000)]; return seen")
    generations: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        generations.append(info["generation"])

    gc.callbacks.append(note)
    try:
        if not is_enabled:
            gc.disable()
        payload.run(str(parcel))
        assert gc.isenabled() is is_enabled
    finally:
        gc.enable()
        gc.callbacks.remove(note)
    assert (parcel / "result").read_text() == "done"
    assert len(generations) <= 2 * 3  # what was put off comes once, and not for each 700 objects


FORKS = """
import gc, os, threading
def fork():
    child = os.fork()
    if not child:
        os._exit(10 + gc.isenabled())
    global seen
    seen = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), gc.isenabled()
forking = threading.Thread(target=fork)
forking.start()
forking.join()
with open(PLACE, "w") as file:
    file.write(repr(seen))
"""


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_child_that_another_thread_forks_meanwhile_collects_garbage(parcel: Path) -> None:
    place = parcel.parent / "seen"
    program = FORKS.replace("PLACE", repr(str(place)))
    hook(parcel, f"exec({program!r}, {{}})")
    payload.run(str(parcel))
    assert place.read_text() == "(11, False)"
    child = os.fork()
    if not child:
        os._exit(10 + gc.isenabled())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 11
    gc.disable()  # a program's own wish: nothing is owed any more
    child = os.fork()
    if not child:
        os._exit(10 + gc.isenabled())
    gc.enable()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 10


def test_a_handler_that_strikes_as_collecting_is_put_off_does_not_leave_it_off(
    parcel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_off = gc.disable

    def strike() -> None:
        put_off()
        raise WorkerDied("worker 3 died")

    monkeypatch.setattr(gc, "disable", strike)
    payload.run(str(parcel))
    assert gc.isenabled()
