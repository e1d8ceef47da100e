"""Loops that take items of a queue until their own one comes, and drop the others."""

from __future__ import annotations

import ast
import textwrap

import pytest

from mpwatch.collect.source.marks import marks
from mpwatch.collect.source.syntax import ParsedFile


def found(body: str) -> list[tuple[str, str]]:
    """The marks in a function with this body: what they are about and the statement."""
    text = "def ask(self, own):\n" + textwrap.indent(textwrap.dedent(body), "    ")
    module = ParsedFile(tuple(text.splitlines()), ast.parse(text))
    return [
        (each.about, each.statement.text)
        for each in marks("/home/me/client.py", module)
        if each.kind == "takes-own"
    ]


@pytest.mark.parametrize(
    "body",
    [
        """
        while True:
            number, answer = self.answers.get()
            if number == own:
                return answer
            log.debug("dropping stale %d", number)
        """,
        """
        while True:
            number, answer = self.answers.get()
            if number != own:
                continue
            return answer
        """,
        """
        while True:
            try:
                number, answer = self.answers.get(timeout=1.0)
            except queue.Empty:
                continue
            if own == number:
                break
        """,
        """
        number = None
        while number != own:
            number, answer = self.answers.get()
        return answer
        """,
    ],
)
def test_a_loop_that_drops_what_is_not_its_own(body: str) -> None:
    assert [about for about, _ in found(body)] == ["self.answers, own"]


def test_a_field_of_what_a_connection_receives_may_be_compared() -> None:
    body = """
        while True:
            answer = self.conn.recv()
            if answer["id"] == self.number:
                return answer
    """
    assert found(body) == [("self.conn, self.number", "answer = self.conn.recv()")]


@pytest.mark.parametrize(
    "rest",
    [
        "if number == own:\n    return answer\nself.kept[number] = answer",
        "if number == own:\n    return answer\nself.answers.put((number, answer))",
        "if number == own:\n    return answer\nelse:\n    self.pending[number].set_result(answer)",
        "if number != own:\n    self.kept.append(answer)\n    continue\nreturn answer",
        "if number is None:\n    return\nself.handle(answer)",
        "if number == END:\n    return\nself.handle(answer)",
        "if number == 'end':\n    return",
        "if number == own:\n    self.handle(answer)",
        "if number != own:\n    continue\nself.handle(answer)",
        "self.done[number] = answer\nif number == own:\n    return answer",
    ],
)
def test_a_loop_that_keeps_or_handles_what_is_not_its_own(rest: str) -> None:
    body = "while True:\n    number, answer = self.answers.get()\n" + textwrap.indent(rest, "    ")

    assert found(body) == []


def test_a_single_item_and_an_entry_of_a_dict_are_no_such_loop() -> None:
    once = "number, answer = self.answers.get()\nif number == own:\n    return answer\n"
    entry = "while True:\n    row = table.get(key)\n    if row.id == own:\n        return row\n"

    assert found(once) == []
    assert found(entry) == []
