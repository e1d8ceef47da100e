from __future__ import annotations

import importlib.machinery
import os
import signal
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpwatch.attach import payload, stub


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


def test_a_program_in_the_middle_of_an_import_is_asked_again_later(
    parcel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = types.ModuleType("zipapp")
    half.__spec__ = importlib.machinery.ModuleSpec("zipapp", None)
    half.__spec__._initializing = True  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "zipapp", half)
    payload.run(str(parcel))
    assert (parcel / "result").read_text() == payload.LATER

    half.__spec__._initializing = False  # type: ignore[attr-defined]
    payload.run(str(parcel))
    assert (parcel / "result").read_text() != payload.LATER


def test_a_module_of_the_program_that_is_half_imported_holds_nobody_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    half = types.ModuleType("their_package")
    half.__spec__ = importlib.machinery.ModuleSpec("their_package", None)
    half.__spec__._initializing = True  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "their_package", half)
    assert not payload.is_importing()
