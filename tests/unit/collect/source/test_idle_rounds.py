"""What leaves a round of a loop without work, and what has failed before it sleeps."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from mpwatch.collect.source.source_code import SourceCode
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Frame
from mpwatch.model.source_code import SourceLine

OWN = ProcessId(os.getpid(), 1)
CACHE = """\
class Cache:
    def reserve(self, name, count):
        if count <= 0:
            return []
        if count > len(self.free):
            return None
        return self.free[:count]
"""
CHOOSES = """\
import time
import cache

class Engine:
    def choose(self):
        chosen = []
        while self.waiting and len(chosen) < 8:
            request = self.waiting[0]
            if self.cache.reserve(request.name, request.size) is None:
                break
            self.waiting.popleft()
            chosen.append(request)
        return [each for each in chosen if each.is_alive]

    def step(self):
        batch = self.choose()
        if not batch:
            time.sleep(0.001)
            return
        self.work(batch)
"""
ASKS = """\
import itertools
import time

class Client:
    def __init__(self, endpoints):
        self.endpoints = list(endpoints)
        self.rotation = itertools.cycle(self.endpoints)

    def send(self, endpoint, payload):
        for attempt in range(4):
            try:
                return self.exchange(endpoint, payload)
            except OSError:
                time.sleep(0.1 * 2 ** attempt)

    def ask(self, payload):
        endpoint = next(self.rotation)
        return self.send(endpoint, payload)
"""


def read(folder: Path, text: str, function: str, place: str = "time.sleep") -> SourceLine:
    """The line of a file that contains some text."""
    (folder / "cache.py").write_text(CACHE)
    file = folder / "job.py"
    file.write_text(text)
    number = next(n for n, row in enumerate(text.splitlines(), 1) if place in row)
    code, now_s = SourceCode(), time.time() + 9.0
    code.marks(OWN, str(file), now_s)
    found = code.line(OWN, Frame(function, str(file), number), now_s)
    assert found is not None
    return found


def test_what_leaves_before_work_is_chosen_is_found_through_its_calls(tmp_path: Path) -> None:
    idle = read(tmp_path, CHOOSES, "step").idle

    assert idle is not None
    assert idle.condition.text == "if not batch:"
    assert (idle.given.text, idle.function) == ("batch = self.choose()", "choose")
    assert idle.adds.text == "chosen.append(request)"
    assert idle.unless.text.endswith("is None: break")
    assert idle.container == "self.waiting"
    assert idle.because is not None
    assert idle.because.statement.text == "if count > len(self.free): return None"


@pytest.mark.parametrize(
    ("old", "new", "container"),
    [
        # Whether an element that is taken out in each case comes again is not known.
        ("request = self.waiting[0]", "request = self.waiting.popleft()", ""),
        ("                break", "                continue", ""),
        ("while self.waiting and len(chosen) < 8:", "for request in list(self.waiting):", None),
    ],
)
def test_only_what_is_left_in_its_place_holds_up_those_behind_it(
    tmp_path: Path, old: str, new: str, container: str | None
) -> None:
    idle = read(tmp_path, CHOOSES.replace(old, new), "step").idle

    assert idle is not None
    assert idle.container == ("self.waiting" if container is None else container)


@pytest.mark.parametrize(
    "full",
    ["len(chosen) >= 8", "chosen and self.is_late(request)", "chosen or len(chosen) > self.most"],
)
def test_a_result_is_not_empty_because_it_is_full(tmp_path: Path, full: str) -> None:
    scans = f"""\
import time

class Engine:
    def choose(self):
        chosen = []
        for request in self.waiting:
            if {full}:
                break
            chosen.append(request)
        return chosen

    def step(self):
        batch = self.choose()
        if not batch:
            time.sleep(0.001)
"""
    assert read(tmp_path, scans, "step").idle is None

    both = scans.replace(f"if {full}:", f"if {full} or self.size(request) > self.free:")
    idle = read(tmp_path, both, "step").idle
    assert idle is not None
    assert idle.container == "self.waiting"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("if not batch:", "if self.is_paused:"),
        ("time.sleep(0.001)", "self.pause(0.001)  # no time.sleep"),
        ("batch = self.choose()", "batch = self.inbox.get()"),
    ],
)
def test_a_sleep_for_another_reason_is_no_want_of_work(tmp_path: Path, old: str, new: str) -> None:
    assert read(tmp_path, CHOOSES.replace(old, new), "step").idle is None


def test_a_failed_call_is_found_with_what_chooses_its_target(tmp_path: Path) -> None:
    retry = read(tmp_path, ASKS, "send").retry

    assert retry is not None
    assert retry.statement.text == "return self.exchange(endpoint, payload)"
    assert (retry.handler.text, retry.is_connection) == ("except OSError:", True)
    assert retry.chosen is not None
    assert retry.chosen.statement.text == "endpoint = next(self.rotation)"
    assert retry.kept is not None
    assert retry.kept.statement.text == "self.endpoints = list(endpoints)"


def test_few_of_many_arguments_are_followed(tmp_path: Path) -> None:
    many = ", ".join(f"option_{n}" for n in range(40))
    retry = read(
        tmp_path, ASKS.replace("change(endpoint", f"change({many}, endpoint"), "send"
    ).retry

    assert retry is not None
    assert retry.chosen is None


def test_a_list_that_is_made_shorter_is_not_kept(tmp_path: Path) -> None:
    shorter = ASKS.replace(
        "    def ask", "    def drop(self, one):\n        self.endpoints.remove(one)\n\n    def ask"
    )
    retry = read(tmp_path, shorter, "send").retry

    assert retry is not None
    assert retry.kept is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("except OSError:", "except queue.Empty:"),
        ("except OSError:", "except FileNotFoundError:"),
        ("for attempt in range(4):", "if self.is_on:"),
        (
            "for attempt in range(4):\n            try:\n                return self",
            "for endpoint in self.endpoints:\n            try:\n                self",
        ),
    ],
)
def test_a_look_for_what_is_not_there_yet_is_no_failed_call(
    tmp_path: Path, old: str, new: str
) -> None:
    assert read(tmp_path, ASKS.replace(old, new), "send").retry is None
