"""Forks that the system refuses: the hook's thread ends before a fork and starts again after it."""

from __future__ import annotations

import errno
import os
import sys

import pytest

from mpwatch.hook.lifecycle.fork import counts_late
from tests.conftest import Start

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user"),
]


@pytest.mark.parametrize(
    ("mode", "reason"), [("processes", errno.EAGAIN), ("memory", errno.ENOMEM)]
)
def test_after_refused_forks_and_threads_the_hook_answers_once_there_is_room(
    mode: str, reason: int, start: Start
) -> None:
    program = start("hook_refused.py", mode)

    assert program.wait() == 0, program.lines
    assert [line for line in program.lines if line != "not refused"] == [
        "answers before True",
        f"refused {reason}",
        "answers at once False",
        "answers True",
        "tasks 1",
    ]


def test_after_a_refused_fork_the_hook_answers_at_once(start: Start) -> None:
    program = start("hook_refused.py", "filtered")

    assert program.wait() == 0, program.lines
    # A Python that counts threads after the fork functions starts it with the next record.
    is_at_once = not counts_late(sys.version_info[:3])
    assert program.lines == [
        "answers before True",
        f"refused {errno.EAGAIN}",
        f"answers at once {is_at_once}",
        "answers True",
        "tasks 1",
    ]
