from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from mpwatch.attach.late_children import GROWN_UP_S, late_children
from mpwatch.attach.target import age_s, read_stat
from mpwatch.model.ids import ProcessId


def process(pid: int) -> ProcessId:
    return ProcessId(pid, read_stat(pid)[2])


@pytest.fixture
def child() -> Iterator[ProcessId]:
    popen = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process(popen.pid)
    popen.communicate()


def test_a_child_that_is_in_no_list_is_found_once_it_is_grown_up(child: ProcessId) -> None:
    found = late_children([process(os.getpid())])

    assert child in {sample.process for sample in found}
    assert age_s(child.pid) >= GROWN_UP_S


def test_a_child_that_was_looked_after_is_not_found_again(child: ProcessId) -> None:
    found = late_children([process(os.getpid()), child])

    assert child not in {sample.process for sample in found}


def test_parents_that_have_gone_have_no_children() -> None:
    assert late_children([ProcessId(2**22 + 1, 1)]) == []
