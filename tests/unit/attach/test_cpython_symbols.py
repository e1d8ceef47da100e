"""The search for the interpreter of a process; here it is this process itself."""

from __future__ import annotations

import os

import pytest

from mpwatch.attach.native import cpython_symbols, elf
from mpwatch.attach.native.cpython_symbols import LOADED_WITHIN_S
from mpwatch.attach.outcomes import Refused


@pytest.mark.parametrize(
    ("has_c_library", "age_s", "passes"),
    [
        (False, 0.0, True),
        (True, 0.0, False),
        (False, LOADED_WITHIN_S, False),
    ],
    ids=["still loading", "loaded", "old"],
)
def test_only_a_young_process_without_the_c_library_may_get_an_interpreter(
    monkeypatch: pytest.MonkeyPatch, has_c_library: bool, age_s: float, passes: bool
) -> None:
    loaded = elf.modules(elf.read_mappings(os.getpid()))
    c_library = tuple(
        each for each in loaded if each.name.startswith(("libc.", "libc-", "ld-musl"))
    )
    assert c_library
    monkeypatch.setattr(elf, "modules", lambda _mappings: c_library if has_c_library else ())
    monkeypatch.setattr("mpwatch.collect.process.procfs.age_s", lambda *_: age_s)

    with pytest.raises(Refused, match="not a Python process") as refusal:
        cpython_symbols.find(os.getpid())

    assert refusal.value.passes is passes
