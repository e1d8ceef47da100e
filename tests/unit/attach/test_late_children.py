from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from mpwatch.attach.inject_tree import MIN_AGE_S, late_children
from mpwatch.collect.process.procfs import age_s, stat_of
from mpwatch.model.ids import ProcessId


def process(pid: int) -> ProcessId:
    return stat_of(pid).process


@pytest.fixture
def child() -> Iterator[ProcessId]:
    popen = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process(popen.pid)
    popen.communicate()


def test_an_unlisted_child_is_found_once_it_is_old_enough(child: ProcessId) -> None:
    found = late_children([process(os.getpid())])

    assert child in {sample.process for sample in found}
    assert age_s(child.pid) >= MIN_AGE_S


def test_a_handled_child_is_not_found_again(child: ProcessId) -> None:
    found = late_children([process(os.getpid()), child])

    assert child not in {sample.process for sample in found}


def test_parents_that_have_gone_have_no_children() -> None:
    assert late_children([ProcessId(2**22 + 1, 1)]) == []
