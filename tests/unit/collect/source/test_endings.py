"""Statements of a program that would end the wait of a line."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from mpwatch.collect.source.source_code import SourceCode
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Frame
from mpwatch.model.source_code import Ending, Statement

OWN = ProcessId(os.getpid(), 1)
SERVER = """\
import threading, client

class Server:
    def __init__(self, answers):
        self._answers = answers
        self.ready = threading.Event()
        self.pending = {}
        self.is_over = False

    def run(self):
        self.ready.wait()
        while self.pending:
            time.sleep(0.1)
        while not self.is_over:
            self.is_over = self.step()
        while not self.is_over and self.left.value > 0:
            time.sleep(0.1)
        text = self.answers.get("text")
        return self._answers.get(timeout=5)

    def load(self, rank):
        if rank != 0:
            return
        if self.check():
            self.ready.set()
        self.left.value -= 1

    def on_answer(self, key):
        try:
            del self.pending[key]
        except KeyError:
            self.is_over = True
"""
CLIENT = """\
def work(answers, is_over):
    version = 0
    while version < 9:
        version = newest()
        time.sleep(0.1)
    is_over = True
    answers.put(version)
"""


def endings_of(folder: Path, file: str, function: str, line: int) -> list[tuple[str, int, str]]:
    """Of a line: the file, line and statement of each ending."""
    return [(Path(each.file).name, *each.statement) for each in read(folder, file, function, line)]


def read(folder: Path, file: str, function: str, line: int) -> tuple[Ending, ...]:
    (folder / "server.py").write_text(SERVER)
    (folder / "client.py").write_text(CLIENT)
    code, now_s = SourceCode(), time.time() + 9.0
    code.marks(OWN, str(folder / "server.py"), now_s)
    found = code.line(OWN, Frame(function, str(folder / file), line), now_s)
    assert found is not None
    return found.ended_by


@pytest.mark.parametrize(
    ("line", "endings"),
    [
        (11, [("server.py", 25, "self.ready.set()")]),
        (13, [("server.py", 30, "del self.pending[key]")]),
        # What a loop does in its own rounds is no wait: it works.
        (15, []),
        # `is_over = True` in client.py is a variable of a function.
        (
            17,
            [
                ("server.py", 15, "self.is_over = self.step()"),
                ("server.py", 32, "self.is_over = True"),
                ("server.py", 26, "self.left.value -= 1"),
            ],
        ),
        # That is of a dict.
        (18, []),
        (19, [("client.py", 7, "answers.put(version)")]),
        # No wait at all.
        (25, []),
    ],
)
def test_what_would_end_a_wait_is_found_by_its_name(
    tmp_path: Path, line: int, endings: list[tuple[str, int, str]]
) -> None:
    function = "run" if line < 20 else "load"

    assert sorted(endings_of(tmp_path, "server.py", function, line)) == sorted(endings)


def test_a_variable_that_a_loop_tests_changes_in_the_loop(tmp_path: Path) -> None:
    assert endings_of(tmp_path, "client.py", "work", 5) == [("client.py", 4, "version = newest()")]


def test_an_ending_has_the_condition_around_it_and_what_leaves_before(tmp_path: Path) -> None:
    (found,) = read(tmp_path, "server.py", "run", 11)
    (caught,) = read(tmp_path, "server.py", "run", 13)

    assert found.function == "load"
    assert found.under == Statement(24, "if self.check():")
    assert found.after == Statement(22, "if rank != 0: return")
    assert (caught.under, caught.after) == (None, None)


@pytest.mark.parametrize(
    ("test", "lines"),
    [
        ("self.left > 0", [7, 8]),
        ("self.other or self.left >= 1", [7, 8]),
        ("self.left < self.limit", [6, 8]),
        ("self.left != 0", [6, 7, 8]),
        ("not self.left > 0", [6, 7, 8]),
    ],
)
def test_what_only_keeps_a_loop_going_does_not_end_its_wait(
    tmp_path: Path, test: str, lines: list[int]
) -> None:
    text = f"""\
class Gate:
    def run(self):
        while {test}:
            time.sleep(0.1)
    def change(self, by):
        self.left += 1
        self.left -= 1
        self.left += by
"""
    (tmp_path / "gate.py").write_text(text)
    code, now_s = SourceCode(), time.time() + 9.0
    found = code.line(OWN, Frame("run", str(tmp_path / "gate.py"), 4), now_s)

    assert found is not None
    assert sorted(each.statement.line for each in found.ended_by) == lines
