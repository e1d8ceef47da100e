"""What a thread waits for, in the words that all screens and reports share."""

from __future__ import annotations

import pytest

from mpwatch.describe.waits import object_words, resource_words
from mpwatch.model.samples import WaitedOn, WaitKind
from mpwatch.observe.state.process_builder import wait_words


@pytest.mark.parametrize(
    ("kind", "what", "words"),
    [
        ("pipe-read", "pipe 18174", "data on pipe 18174"),
        ("poll", "3 pipes or sockets", "data on 3 pipes or sockets"),
        ("socket-read", "tcp 10.0.0.1:1 > 10.0.0.2:2", "data on tcp 10.0.0.1:1 > 10.0.0.2:2"),
        ("pipe-write", "a reader of pipe 5", "room in a full pipe (pipe 5)"),
        ("socket-write", "a reader of socket 5", "the other end of socket 5 to read"),
        ("poll", "batch 417", "batch 417"),
        ("pipe-read", "work on pipe 5", "work on pipe 5"),
        ("semaphore", "semaphore 9:7", "semaphore 9:7"),
        ("child", "exit of 300", "the exit of 300"),
    ],
)
def test_the_object_of_a_wait(kind: WaitKind, what: str, words: str) -> None:
    assert object_words(kind, what) == words


@pytest.mark.parametrize(
    ("target", "words"),
    [("pipe:[18174]", "pipe 18174"), ("sem 9:7", "semaphore 9:7"), ("/a/b", "/a/b")],
)
def test_a_target_has_the_name_of_the_wait_graph(target: str, words: str) -> None:
    assert resource_words(target) == words


@pytest.mark.parametrize(
    ("wait", "words"),
    [
        (WaitedOn("pipe-write", "write", ("pipe:[5]",)), "waits for room in a full pipe (pipe 5)"),
        (WaitedOn("poll", "poll", ()), "sleeps"),
        (WaitedOn("child", "wait4", ("pid 7",)), "waits for the exit of 7"),
        (WaitedOn("futex", "futex", ("futex 0x7",)), "waits for a lock or condition of its own"),
    ],
)
def test_a_process_without_a_stack_is_described_in_the_same_words(
    wait: WaitedOn, words: str
) -> None:
    assert wait_words(wait).startswith(words)
