"""Limits on what is under way, under which a statement sends."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from mpwatch.collect.source.source_code import SourceCode
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Frame
from mpwatch.model.source_code import InFlight, LeftOut, Statement

OWN = ProcessId(os.getpid(), 1)
CONTROLLER = """\
class Controller:
    def __init__(self, requests, results, most):
        self.requests, self.results, self.most = requests, results, most
        self.sent = self.done = 0
        self.pending = {}
        self.slots = Semaphore(most)

    def dispatch(self, parts):
        BEFORE
        GUARD
            RISES
            self.requests.put(parts)

    def collect(self):
        result = self.results.get()
        FALLS
        self.train(result)

    def other(self):
        OTHER
"""
WORKER = """\
class Worker:
    def run(self):
        while True:
            request = self.requests.get()
            for part in request.parts:
                row = self.play(part)
                if not row.is_whole:
                    self.short += 1
                    continue
                result.rows.append(row)
            self.results.put(result)
"""
WHILE = "while self.sent + len(parts) <= self.most:"
ADDS = "self.sent += len(parts)"


def limit(
    folder: Path,
    guard: str = WHILE,
    rises: str = ADDS,
    falls: str = "self.sent -= len(result.rows)",
    before: str = "pass",
    other: str = "pass",
) -> InFlight | None:
    """The limit under which `dispatch` sends that for which `run` waits."""
    text = CONTROLLER
    for name, each in (("BEFORE", before), ("GUARD", guard), ("RISES", rises), ("FALLS", falls)):
        text = text.replace(name, each)
    (folder / "main.py").write_text(text.replace("OTHER", other))
    path = folder / "worker.py"
    path.write_text(f"import main\n{WORKER}")
    code, now_s = SourceCode(), time.time() + 9.0
    code.marks(OWN, str(path), now_s)
    found = code.line(OWN, Frame("run", str(path), 5), now_s)
    assert found is not None
    (ending,) = (each for each in found.ended_by if each.function == "dispatch")
    return ending.limit


def test_a_count_that_rises_beside_the_send_and_falls_by_what_comes_back(tmp_path: Path) -> None:
    assert limit(tmp_path) == InFlight(
        "self.sent",
        Statement(10, WHILE),
        Statement(11, ADDS),
        "collect",
        Statement(16, "self.sent -= len(result.rows)"),
        by_content=True,
        left_out=LeftOut(
            str(tmp_path / "worker.py"),
            "run",
            Statement(11, "result.rows.append(row)"),
            Statement(8, "if not row.is_whole: continue"),
        ),
    )


@pytest.mark.parametrize(
    ("guard", "rises", "falls", "before"),
    [
        (WHILE, ADDS, "self.sent -= 1", "pass"),
        ("if self.most > self.sent:", "self.sent = self.sent + 1", "self.sent -= 1", "pass"),
        ("if True:", ADDS, "self.sent -= 1", "if self.sent >= self.most: return"),
        (
            "while len(self.pending) < self.most:",
            "self.pending[parts.key] = parts",
            "self.pending.pop(result.key)",
            "pass",
        ),
        ("while self.sent - self.done < self.most:", ADDS, "self.done += 1", "pass"),
        ("if parts:", "self.slots.acquire()", "self.slots.release()", "pass"),
    ],
)
def test_other_limits(tmp_path: Path, guard: str, rises: str, falls: str, before: str) -> None:
    found = limit(tmp_path, guard, rises, falls, before)

    assert found is not None
    assert (found.falls_in, found.falls.text) == ("collect", falls)
    assert (found.by_content, found.left_out) == (False, None)


@pytest.mark.parametrize(
    ("falls", "by_content"),
    [
        ("self.sent -= len(result.rows)", True),
        ("self.sent -= len(result['rows'])", True),
        ("self.sent -= len(result)", False),  # as many as have come
        ("self.sent -= count(result.rows)", False),
    ],
)
def test_only_the_length_of_a_part_of_an_answer_is_its_content(
    tmp_path: Path, falls: str, by_content: bool
) -> None:
    found = limit(tmp_path, falls=falls)

    assert found is not None
    assert found.by_content is by_content


@pytest.mark.parametrize(
    ("guard", "rises", "falls", "other"),
    [
        (WHILE, "self.parts += 1", "self.sent -= 1", "pass"),  # of what is not counted here
        (WHILE, ADDS, "pass", "pass"),  # how many there are in all
        (WHILE, ADDS, "pass", "self.sent -= 1"),  # by nothing that comes back
        (WHILE, ADDS, "self.sent -= 1", "self.sent = 0"),
        ("if self.sent:", ADDS, "self.sent -= 1", "pass"),
        ("with self.slots:", ADDS, "self.sent -= 1", "pass"),
    ],
)
def test_what_is_no_limit_on_what_is_under_way(
    tmp_path: Path, guard: str, rises: str, falls: str, other: str
) -> None:
    assert limit(tmp_path, guard, rises, falls, other=other) is None


def test_a_permit_that_the_same_function_releases_is_none(tmp_path: Path) -> None:
    both = "self.slots.acquire(); self.slots.release()"

    assert limit(tmp_path, "if parts:", both, "self.slots.release()") is None
