"""How the limit is computed that a statement gives to a wait."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpwatch.model.source_code import Origin
from tests.unit.collect.source.test_origins import origins

QUEUE = """
class Queue:
    def get(self, timeout=None):
        limit_ms = None if timeout is None else int(timeout * 1000)
        if not self.poller.poll(limit_ms):  # here
            pass  # here
"""
CALLS = """
import time
from main import Queue


def answers(queues, timeout):
    deadline = time.monotonic() + timeout

    def collect():
        for queue in queues:
            left = deadline - time.monotonic()
            queue.get_answer(left)

    return collect


def serve(queue):
    queue.get_answer()
"""


def limits(folder: Path, text: str, function: str, **files: str) -> list[Origin]:
    found = origins(folder, text, function, **files)
    return [each for each in found if "# here" not in each.statement.text and each.names]


def at_poll(folder: Path, *rows: str, limit: str, head: str = "") -> list[Origin]:
    """How a limit is computed that a function gives to poll() after some statements."""
    body = "\n".join(f"    {row}" for row in rows)
    text = f"""
import time
LIMIT_MS = 5000
{head}

def run(self, poller, end, count):
    began = time.monotonic()
{body}
    if poller.poll({limit}):
        pass  # here
"""
    return limits(folder, text, "run")


@pytest.mark.parametrize(
    ("rows", "limit", "about"),
    [
        ((), "end - time.monotonic()", "end - time.monotonic()"),
        ((), "(end - time.monotonic()) * 1000", "end - time.monotonic()"),
        ((), "min(end - time.time(), 5)", "end - time.time()"),
        ((), "timeout=end - time.time()", "end - time.time()"),
        (("left = end - time.monotonic()",), "int(left * 1e3)", "end - time.monotonic()"),
        (("left = end - time.monotonic()", "left *= 1000"), "left", "end - time.monotonic()"),
        (("left = 5.0", "left -= time.time() - began"), "left", "left - (time.time() - began)"),
        (("now = time.time()",), "self.end - now", "self.end - now"),
        ((), "5 - (time.time() - began)", "5 - (time.time() - began)"),
        ((), "(end - datetime.now()).total_seconds()", "end - datetime.now()"),
    ],
)
def test_what_is_left_until_a_deadline_may_be_below_zero(
    tmp_path: Path, rows: tuple[str, ...], limit: str, about: str
) -> None:
    (found,) = at_poll(tmp_path, *rows, limit=limit)

    assert (found.kind, found.about, found.is_certain) == ("time-left", about, True)
    assert all(each.statement.text in rows for each in found.steps)


@pytest.mark.parametrize(
    ("rows", "limit"),
    [
        ((), "5000"),
        ((), "ctypes.byref(self.fds), count, -1"),
        ((), "LIMIT_MS"),
        ((), ""),
        ((), "max(0, end - time.monotonic())"),
        (("left = max(end - time.monotonic(), 0.0)",), "left * 1000"),
        (("left = end - time.monotonic()", "if left <= 0: raise TimeoutError"), "left"),
        (("if time.monotonic() > end: return",), "end - time.monotonic()"),
        (("left = end - time.time()",), "left if left > 0 else 0"),
    ],
)
def test_a_limit_that_is_looked_at_before_is_none_of_those(
    tmp_path: Path, rows: tuple[str, ...], limit: str
) -> None:
    assert at_poll(tmp_path, *rows, limit=limit) == []


@pytest.mark.parametrize("limit", ["self.limit", "time.monotonic() - began", "end - count", "end"])
def test_a_limit_of_which_nothing_is_known_is_noted_as_such(tmp_path: Path, limit: str) -> None:
    (found,) = at_poll(tmp_path, limit=limit)

    assert (found.kind, found.names, found.steps) == ("", (limit,), ())


@pytest.mark.parametrize("limit", ["None if count else 3.0", "-1"])
def test_a_limit_that_may_be_none_says_nothing(tmp_path: Path, limit: str) -> None:
    assert at_poll(tmp_path, limit=limit) == []


def test_where_there_may_be_no_deadline_the_time_left_is_not_certain(tmp_path: Path) -> None:
    rows = ("end = None if count else time.time() + 3",)

    (found,) = at_poll(tmp_path, *rows, limit="None if end is None else end - time.time()")

    assert (found.kind, found.is_certain) == ("time-left", False)


def test_a_lock_takes_no_number_below_zero_but_one(tmp_path: Path) -> None:
    text = """
import time

def run(self, end):
    if self.lock.acquire(timeout=end - time.monotonic()):
        pass  # here
"""
    (found,) = limits(tmp_path, text, "run")

    assert found.kind == ""


def test_a_limit_is_followed_to_the_callers_that_give_one(tmp_path: Path) -> None:
    text = QUEUE.replace("def get", "def get_answer")

    (found,) = limits(tmp_path, f"import calls\n{text}", "get_answer", calls=CALLS)

    assert (found.kind, found.about) == ("time-left", "deadline - time.monotonic()")
    assert found.is_certain
    assert found.names == ("limit_ms",)
    assert [(each.function, each.statement.text, each.is_call) for each in found.steps] == [
        (
            "get_answer",
            "limit_ms = None if timeout is None else int(timeout * 1000)",
            False,
        ),
        ("collect", "queue.get_answer(left)", True),
        ("collect", "left = deadline - time.monotonic()", False),
    ]


def test_what_a_method_of_the_program_returns_is_followed(tmp_path: Path) -> None:
    head = """
class Deadline:
    def remaining(self):
        return self.end - time.monotonic()
"""
    (found,) = at_poll(tmp_path, "due = Deadline()", limit="due.remaining()", head=head)

    assert (found.kind, found.about) == ("time-left", "self.end - time.monotonic()")
