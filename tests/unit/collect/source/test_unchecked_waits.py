"""Waits for a condition before which nothing looks whether what they wait for is there."""

from __future__ import annotations

import ast
import textwrap

import pytest

from mpwatch.collect.source.marks import marks
from mpwatch.collect.source.syntax import ParsedFile

BOX = """
    class Box:
        def put(self, item):
            with self.cond:
                if self.closed:
                    raise ValueError
                self.items.append(item)
                self.cond.notify()

        def close(self):
            with self.cond:
                self.closed = True
                self.cond.notify_all()

        def is_there(self):
            return self.size() > 0

        def size(self):
            return len(self.items)

        def get(self, poll=0.2):
"""


def found(text: str) -> list[tuple[str, str, int]]:
    """The marks of waits in a file: function, what they are about and line."""
    text = textwrap.dedent(text)
    module = ParsedFile(tuple(text.splitlines()), ast.parse(text))
    return [
        (each.function, each.about, each.statement.line)
        for each in marks("/home/me/box.py", module)
        if each.kind == "unchecked-wait"
    ]


def in_get(body: str) -> list[tuple[str, str, int]]:
    """The marks with this body of `get`, whose first line is 22."""
    return found(BOX + textwrap.indent(textwrap.dedent(body).strip("\n"), " " * 12))


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("with self.cond:\n    self.cond.wait()\n    return self.items.pop()", 23),
        ("with self.cond:\n    self.cond.wait(None)\n    return self.items.pop()", 23),
        ("with self.cond:\n    self.cond.wait()", 23),
        (
            "with self.cond:\n"
            "    while not self.cond.wait(poll):\n"
            "        pass\n"
            "    return self.items.pop()",
            23,
        ),
        (
            "with self.cond:\n"
            "    while not self.closed:\n"
            "        if self.cond.wait(poll):\n"
            "            break\n"
            "    return self.items.pop()",
            24,
        ),
        (
            "while not self.closed:\n"
            "    with self.cond:\n"
            "        if not self.cond.wait(timeout=poll):\n"
            "            continue\n"
            "        return self.items.pop()",
            24,
        ),
        (
            "while True:\n"
            "    with self.cond:\n"
            "        self.cond.wait()\n"
            "        batch = list(self.items)\n"
            "    work(batch)",
            24,
        ),
    ],
)
def test_a_wait_before_which_nothing_looks(body: str, line: int) -> None:
    assert in_get(body) == [("get", "self.cond, self.items, 7, put, 8", line)]


@pytest.mark.parametrize(
    "body",
    [
        "with self.cond:\n    while not self.items:\n        self.cond.wait()",
        "with self.cond:\n    self.cond.wait_for(lambda: self.items)",
        "with self.cond:\n    if not self.items:\n        self.cond.wait()",
        "with self.cond:\n    while not self.is_there():\n        self.cond.wait(poll)",
        "with self.cond:\n    if self.items:\n        return 1\n    self.cond.wait()",
        # It would be seen at the next round.
        "while not self.closed:\n"
        "    with self.cond:\n"
        "        self.cond.wait(poll)\n"
        "        if self.items:\n"
        "            return self.items.pop()",
        "with self.cond:\n"
        "    while not self.cond.wait(poll):\n"
        "        if self.is_there():\n"
        "            break\n"
        "    return self.items.pop()",
        # No answer can come before the wait lets go of the lock.
        "with self.cond:\n    self.asked.put(poll)\n    self.cond.wait()\n    self.items.pop()",
        "with self.cond:\n    self.wanted = 3\n    self.cond.wait()\n    self.items.pop()",
        # Something else may say what is there.
        "with self.cond:\n    while self.turn != 3:\n        self.cond.wait()\n    self.items",
        "with self.cond:\n    while not self.up:\n        self.cond.wait()\n    self.items",
        # An event keeps what was set.
        "self.cond.wait()\nreturn self.items.pop()",
        "with self.lock:\n    self.cond.wait()\n    return self.items.pop()",
    ],
)
def test_a_wait_that_loses_nothing(body: str) -> None:
    assert in_get(body) == []


@pytest.mark.parametrize(("asks", "count"), [("self.items", 0), ("self.is_there()", 0), ("n", 1)])
def test_a_caller_may_look_before_a_function_that_only_waits(asks: str, count: int) -> None:
    """It may have the lock already: that of a condition is reentrant."""
    takes = f"""
def take(self, n=1):
    with self.cond:
        while not {asks}:
            self.get()
        return self.items.pop()
"""
    text = textwrap.dedent(BOX) + "        with self.cond:\n            self.cond.wait()\n"

    assert len(found(text + textwrap.indent(takes, " " * 4))) == count


def test_a_condition_of_another_class_is_another_one() -> None:
    other = "    class Other:\n        def get(self):\n"
    waits = "            with self.cond:\n                self.cond.wait()\n"

    assert found(f"{BOX}            pass\n\n{other}{waits}") == []


def test_functions_that_share_a_condition_by_its_name() -> None:
    text = """
        def produce(cond, items):
            for n in range(9):
                items.append(n)
                with cond:
                    cond.notify()

        def consume(cond, items):
            with cond:
                cond.wait()
            print(items.pop())
    """

    assert found(text) == [("consume", "cond, items, 4, produce, 6", 10)]
