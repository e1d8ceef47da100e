"""Facts about a process that the hook is to be brought into or taken out of."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpwatch.attach.outcomes import Refused
from mpwatch.attach.target import read_target
from mpwatch.model.ids import ProcessId
from tests.unit.collect.conftest import FakeProc


@pytest.mark.parametrize(
    ("flags", "reason"), [(0x400004, "the process has ended"), (0x200000, "it is a kernel thread")]
)
def test_a_process_without_executable_is_reported_by_its_flags(
    tmp_path: Path, flags: int, reason: str
) -> None:
    """While its exit is on its way a process has no executable any more, and is no zombie yet."""
    proc = FakeProc(tmp_path)
    proc.process(42, state="R", cmdline=(), exe=None, flags=flags)

    with pytest.raises(Refused, match=f"^{reason}$"):
        read_target(ProcessId(42, 42), str(proc))
