from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import PROGRAMS, Start
from tests.integration.hook.client import Client, wait_for_sockets

pytestmark = pytest.mark.slow


def run(way: str) -> str:
    """The output of the program that ends in this way."""
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / "hook_ends.py"), way],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout


def left_behind(runtime: Path, kind: str) -> dict[str, Any]:
    """The only note of a kind in the files of exited processes."""
    files = (runtime / "mpwatch").glob("*.notes")
    notes = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    (found,) = [note for note in notes if note["kind"] == kind]
    return dict(found)


def said(way: str, kind: str) -> list[dict[str, Any]]:
    """The notes of a kind that the program prints."""
    lines = [line[5:] for line in run(way).splitlines() if line.startswith("note ")]
    return [note for note in map(json.loads, lines) if note["kind"] == kind]


@pytest.mark.parametrize(
    ("way", "code", "how", "function"),
    [
        ("code", 3, "SystemExit", "leave_with_code"),
        ("at_once", 4, "os._exit", "leave_at_once"),
    ],
)
def test_a_process_that_exits_without_a_traceback_notes_how_and_where(
    way: str, code: int, how: str, function: str, runtime: Path
) -> None:
    assert f"code {code}" in run(way)

    note = left_behind(runtime, "exit")
    assert (note["code"], note["how"]) == (code, how)
    assert note["frames"][0][0] == function


def test_a_process_that_was_interrupted_leaves_nothing(runtime: Path) -> None:
    assert "code 1" in run("asked")
    assert list((runtime / "mpwatch").iterdir()) == []


def test_an_exception_behind_sys_exit_is_the_reason(runtime: Path) -> None:
    run("hidden")

    note = left_behind(runtime, "exception")
    assert (note["where"], note["text"]) == ("process start", "the real reason")


def test_an_exception_of_a_class_that_replaces_run_is_noted(runtime: Path) -> None:
    assert "code 1" in run("derived")

    note = left_behind(runtime, "exception")
    assert (note["where"], note["type"]) == ("process start", "LookupError")
    assert note["text"] == "the real reason"
    assert note["frames"][0][0] == "run"


def test_the_exception_that_a_parent_handles_at_a_fork_is_not_the_childs(runtime: Path) -> None:
    assert "code 0" in run("derived_well")

    assert list((runtime / "mpwatch").iterdir()) == []


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_child_that_fails_to_unpickle_notes_the_exception(method: str, runtime: Path) -> None:
    assert "ValueError" in run(method)

    note = left_behind(runtime, "exception")
    assert (note["where"], note["type"]) == ("main", "ValueError")
    assert "_main" in [frame[0] for frame in note["frames"]]


@pytest.fixture
def lingering() -> Iterator[subprocess.Popen[str]]:
    """A program whose main thread died, while another thread keeps it from ending."""
    process = subprocess.Popen(
        [sys.executable, str(PROGRAMS / "hook_ends.py"), "main"],
        stderr=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.communicate()


def test_the_exception_of_main_is_known_while_other_threads_keep_the_process(
    lingering: subprocess.Popen[str], runtime: Path
) -> None:
    notes: list[dict[str, Any]] = []
    path = wait_for_sockets(runtime, 1)[lingering.pid]
    end_s = time.monotonic() + 60
    while not notes and time.monotonic() < end_s:
        with Client(path) as client:
            client.hello()
            client.ask("ping")
            notes = [note for note in client.notes if note["kind"] == "exception"]

    assert [(note["where"], note["text"]) for note in notes] == [("main", "main is over")]
    assert lingering.poll() is None


def test_a_late_choice_of_the_start_method_is_noted_with_the_first_one() -> None:
    (note,) = said("method_taken", "exception")

    assert (note["where"], note["method"]) == ("set_start_method", "spawn")
    assert note["detail"].startswith("fork was chosen before at hook_ends.py:")
    assert note["frames"][0][0] == "method_taken"


def test_exceptions_of_the_resource_sharer_are_noted() -> None:
    (note,) = said("sharer", "exception")

    assert (note["where"], note["type"]) == ("resource sharer", "KeyError")


def test_a_descriptor_of_a_dead_process_is_named_and_those_to_be_fetched_are_counted() -> None:
    lines = run("dead_producer").splitlines()
    notes = [json.loads(line[5:]) for line in lines if line.startswith("note ")]
    (note,) = [note for note in notes if note["kind"] == "receive-failed"]
    (sharer,) = [line for line in lines if line.startswith("sharer ")]

    assert lines[0] == "error True"
    assert note["type"] in ("FileNotFoundError", "ConnectionRefusedError")
    assert "/" in note["address"]
    assert "'outstanding': 1, 'issued': 1" in sharer


def test_descriptors_that_a_new_process_gets_are_counted() -> None:
    starts = said("with_pipes", "start")

    fds = {note["method"]: note["fds"] for note in starts}
    # The pipes, and what each method hands over itself: its data, its tracker, its sentinel.
    assert fds["fork"] is None
    assert fds["spawn"] >= 3
    assert fds["forkserver"] == 3
    assert [note["target"] for note in starts] == ["__main__.nothing"] * 3


@pytest.mark.parametrize("way", ["uninstrument", "detach", "torch"])
def test_a_detached_hook_and_its_ring_are_freed_at_once_without_gc(way: str, start: Start) -> None:
    program = start("hook_reattached.py", way)

    assert program.wait(200) == 0, program.lines
    assert program.lines[-2:] == ["maps True blocks True", "cycles []"]
