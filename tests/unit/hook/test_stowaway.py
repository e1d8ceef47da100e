from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import mpwatch.hook

HOOK = Path(mpwatch.hook.__file__).parent
STRIKE = "import signal; signal.raise_signal(signal.SIGUSR1)"


def die(number: int, frame: FrameType | None) -> None:
    raise RuntimeError("a worker died")


@pytest.fixture
def stowaway(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    monkeypatch.delitem(sys.modules, "mpwatch.hook")
    namespace: dict[str, Any] = {"__name__": "aboard"}
    exec(compile((HOOK / "stowaway.py").read_text(), "stowaway.py", "exec"), namespace)
    name = namespace["RENDEZVOUS"] = "_mpwatch_hook_of_this_test"
    yield namespace
    sys.modules.pop(name, None)


def a_hook(folder: Path, code: str) -> str:
    (folder / "__init__.py").write_text(f"def enter(started_by, birth):\n    {code}\n")
    for name in ("errors.py", "exact.py"):
        (folder / name).write_text((HOOK / name).read_text())
    return str(folder)


def test_a_hook_that_cannot_come_in_stays_outside_and_says_why(
    stowaway: dict[str, Any], tmp_path: Path
) -> None:
    assert stowaway["load"](a_hook(tmp_path, "raise OSError('no room')"), "attach") is None
    assert stowaway["reason"] == "OSError: no room"


def test_what_a_signal_handler_raises_meanwhile_reaches_the_program(
    stowaway: dict[str, Any], tmp_path: Path
) -> None:
    before = signal.signal(signal.SIGUSR1, die)
    try:
        with pytest.raises(RuntimeError, match="a worker died"):
            stowaway["load"](a_hook(tmp_path, STRIKE), "attach")
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_directory_without_a_hook_is_a_reason(stowaway: dict[str, Any], tmp_path: Path) -> None:
    assert stowaway["load"](str(tmp_path / "nothing"), "attach") is None
    assert stowaway["reason"].startswith("FileNotFoundError")
