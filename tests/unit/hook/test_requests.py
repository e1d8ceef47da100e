"""Answers to an observer."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from mpwatch.hook import requests


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
