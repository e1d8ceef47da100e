"""Answers to an observer."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from mpwatch.hook import requests
from mpwatch.hook.safe import one_call


def hook_with(read: Callable[[], object]) -> Any:
    return SimpleNamespace(gauges={"queues": read})


def test_a_gauge_that_fails_is_answered_with_its_reason() -> None:
    def fails() -> object:
        raise ValueError("x" * 1000)

    reading = requests.read_gauge(hook_with(fails), "queues")

    assert list(reading) == ["error"]
    assert reading["error"].startswith("ValueError: xxx")
    assert len(reading["error"]) == 200
    assert requests.read_gauge(hook_with(fails), "another") is None


def test_an_observer_that_asks_for_stacks_where_no_descriptor_is_left_is_told_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It stays connected."""

    def fails() -> str:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(one_call, "stacks_as_json", fails)
    hook: Any = SimpleNamespace(system=SimpleNamespace(thread_time_ns=lambda: 7))

    reply = requests.answer(hook, {"id": 3, "ask": "stacks"})

    assert reply == {"id": 3, "error": "stacks: Too many open files", "cpu_ns": 0}


def test_what_a_signal_handler_raises_during_a_reading_is_not_kept_from_the_program() -> None:
    """A gauge is read on a thread of the program too, when that ends."""

    def handler(*_: object) -> None:
        raise TimeoutError("of the program")

    def is_struck() -> object:
        os.kill(os.getpid(), signal.SIGUSR1)
        return 7

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(TimeoutError, match="of the program"):
            requests.read_gauge(hook_with(is_struck), "queues")
    finally:
        signal.signal(signal.SIGUSR1, before)
