"""Counts that one function waits for, and that others add to without a look at it."""

from __future__ import annotations

import ast
from collections import defaultdict

import pytest

from mpwatch.collect.source.handing_over import admissions
from mpwatch.collect.source.repetition import Call, calls_of, repeated
from mpwatch.collect.source.syntax import ParsedFile

GATE = """\
class Gate:
    def __init__(self):
        self.lock = Lock()
        self.free = Condition(self.lock)
        self.readers = 0
        self.writing = False
        self.waiting = 0

    def enter(self):
        with self.lock:
            {asks}
            self.readers += 1

    def leave(self):
        with self.lock:
            self.readers -= 1
            {wakes}

    def change(self):
        {before}
        with self.free:
            {waits}
            self.writing = True

    def done(self):
        with self.lock:
            self.writing = False
            self.free.notify_all()

    def close(self):
        self.closing = True
        self.change()


def read(gate):
    while True:
        gate.enter()
        gate.leave()
"""
WAITS = "while self.readers > 0: self.free.wait()"


def admitted(
    asks: str = "pass",
    wakes: str = "self.free.notify_all()",
    before: str = "pass",
    waits: str = WAITS,
) -> list[str]:
    text = GATE.format(asks=asks, wakes=wakes, before=before, waits=waits)
    module = ParsedFile(tuple(text.splitlines()), ast.parse(text))
    calls: defaultdict[str, list[Call]] = defaultdict(list)
    for call in calls_of("/a/gate.py", module):
        calls[call.name].append(call)
    pairs = repeated(admissions("/a/gate.py", module), calls)
    return [mark.about for _, mark in pairs]


@pytest.mark.parametrize(
    ("asks", "waits"),
    [
        ("pass", WAITS),
        ("pass", "while self.writing or self.readers != 0: self.free.wait()"),
        ("pass", "while self.readers: self.free.wait(1.0)"),
        ("pass", "self.free.wait_for(lambda: not self.writing and self.readers == 0)"),
        # Only of a writer that is in, which it is after its wait.
        ("while self.writing: self.free.wait()", WAITS),
        ("while self.readers >= self.limit: self.free.wait()", WAITS),
    ],
)
def test_what_adds_to_a_count_whoever_waits_for_it_is_marked(asks: str, waits: str) -> None:
    assert admitted(asks=asks, waits=waits) == [
        "self.readers, change, 22-22, enter; gate.py:36-38 read"
    ]


@pytest.mark.parametrize(
    "parts",
    [
        # It asks for writers that wait.
        {"asks": "while self.waiting > 0: self.free.wait()", "before": "self.waiting += 1"},
        {"asks": "if self.wanted: self.free.wait()", "before": "self.wanted = True"},
        {"asks": "self.open.wait()", "before": "self.open.clear()"},
        # What calls the one that waits has told it before.
        {"asks": "if self.closing: raise RuntimeError"},
        # Both take the same lock first.
        {"asks": "self.turn.acquire()", "before": "self.turn.acquire()"},
        # It waits for the same.
        {"asks": WAITS},
        # Nothing wakes up the one that waits.
        {"wakes": "pass"},
        # It waits for something else.
        {"waits": "while not self.readers > 0: self.free.wait()"},
        {"waits": "while self.readers == 0: self.free.wait()"},
        {"waits": "while self.readers > 4: self.free.wait()"},
    ],
)
def test_what_looks_whether_one_waits_is_not_marked(parts: dict[str, str]) -> None:
    assert admitted(**parts) == []
