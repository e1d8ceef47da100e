from __future__ import annotations

from concurrent.futures import process
from typing import Any

from mpwatch.hook.state.thread_state import Worker


class _CallItem:
    """A class of the program with the name of one of the executor's."""

    def __init__(self) -> None:
        self.work_id, self.fn = [1], print


def test_only_a_call_of_the_executor_is_a_task() -> None:
    worker = Worker()
    worker.source = 1

    worker.begin_job(_CallItem(), 5)
    assert worker.job is None

    call: Any = process._CallItem(7, print, (), {})
    worker.begin_job(call, 5)
    assert worker.job is not None
    assert (worker.job["job"], worker.job["function"]) == (7, "builtins.print")
