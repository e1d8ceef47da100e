"""Statements that take a queue which is empty at one moment for the end of the work."""

from __future__ import annotations

import ast
import textwrap

import pytest

from mpwatch.collect.source.marks import marks
from mpwatch.collect.source.syntax import ParsedFile


def found(body: str) -> list[tuple[str, str]]:
    """The marks in a function with this body: what they are about and the statement."""
    text = "def draw(self):\n" + textwrap.indent(textwrap.dedent(body), "    ")
    module = ParsedFile(tuple(text.splitlines()), ast.parse(text))
    return [
        (each.about, each.statement.text)
        for each in marks("/home/me/source.py", module)
        if each.kind == "ends-when-empty"
    ]


def caught(take: str, then: str, error: str = "queue.Empty") -> str:
    return f"""
    while True:
        try:
            item = {take}
        except {error}:
            {then}
        work(item)
    """


@pytest.mark.parametrize("then", ["break", "return", "return None", "item = None", "return False"])
@pytest.mark.parametrize(
    "take",
    ["self.tasks.get_nowait()", "self.tasks.get(block=False)", "self.tasks.get(timeout=2)"],
)
def test_a_queue_that_is_empty_now_ends_what_takes_from_it(take: str, then: str) -> None:
    assert found(caught(take, then)) == [("self.tasks", f"item = {take}")]


def test_the_end_may_be_logged_and_the_error_be_one_of_several() -> None:
    text = caught("tasks.get_nowait()", "log.info('done'); break", "(Empty, OSError)")

    assert found(text) == [("tasks", "item = tasks.get_nowait()")]


@pytest.mark.parametrize(
    "body",
    [
        "while not self.tasks.empty():\n    work(self.tasks.get())",
        "while self.tasks.qsize() > 0:\n    work(self.tasks.get_nowait())",
        "while self.is_open and not self.tasks.empty():\n    work(self.tasks.get())",
    ],
)
def test_a_loop_that_asks_whether_there_is_an_item(body: str) -> None:
    assert found(body) == [("self.tasks", body.partition("\n")[0])]


@pytest.mark.parametrize(
    "body",
    [
        caught("self.tasks.get()", "break"),
        caught("self.tasks.get(timeout=None)", "break"),
        caught("self.tasks.get(timeout=2)", "continue"),
        caught("self.tasks.get(timeout=2)", "time.sleep(1)"),
        caught("self.tasks.get(timeout=2)", "if self.stop.is_set(): break"),
        caught("self.tasks.get(timeout=2)", "raise"),
        caught("self.tasks.get_nowait()", "break", "KeyError"),
        caught("self.tasks.get_nowait()", "item = 0"),
        "while not self.tasks.empty():\n    time.sleep(1)",
        "while not self.done.empty():\n    work(self.tasks.get())",
        "while self.left > 0 or not self.tasks.empty():\n    work(self.tasks.get())",
        "while not (self.ended and self.tasks.empty()):\n    work(self.tasks.get())",
        "while self.tasks.empty():\n    work(self.tasks.get())",
    ],
)
def test_what_waits_or_tries_again_does_not_end(body: str) -> None:
    assert found(body) == []
