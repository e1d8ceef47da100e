"""Keys are heard at once, and silence costs nothing."""

from __future__ import annotations

import asyncio
import os
import pty
import selectors
import threading
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from textual import events
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.drivers.web_driver import WebDriver
from textual.message import Message

from mpwatch.tui.app import MpwatchApp
from mpwatch.tui.quiet_driver import Bell, QuietDriver
from tests.tui.scripted import ScriptedSource, healthy_job


class Heard(QuietDriver):
    """Keeps what it hears and counts how often it waited."""

    def __init__(self, fileno: int) -> None:
        super().__init__(App())
        self.fileno = fileno
        self.keys: list[str] = []
        self.thread = threading.Thread(target=self.run_input_thread)

    def process_message(self, message: Message) -> None:
        if isinstance(message, events.Key):
            self.keys.append(message.key)


@contextmanager
def waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float | None]]:
    """How long each wait for input was allowed to last."""
    asked: list[float | None] = []
    original = selectors.PollSelector.select

    def select(self: selectors.PollSelector, timeout: float | None = None) -> object:
        asked.append(timeout)
        return original(self, timeout)

    monkeypatch.setattr(selectors.PollSelector, "select", select)
    yield asked


async def until(is_so: Callable[[], bool]) -> None:
    for _ in range(400):
        if is_so():
            return
        await asyncio.sleep(0.025)
    raise AssertionError("it never came to that")


@contextmanager
def listening() -> Iterator[tuple[Heard, int]]:
    """A driver at one end of a terminal, and the other end."""
    ours, theirs = pty.openpty()
    tty.setraw(theirs)
    driver = Heard(theirs)
    driver.thread.start()
    try:
        yield driver, ours
    finally:
        driver.exit_event.set()
        driver.thread.join(10.0)
        assert not driver.thread.is_alive()
        driver.exit_event.clear()
        driver.close()
        os.close(ours)
        os.close(theirs)


async def test_once_nobody_types_it_waits_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with waits(monkeypatch) as asked, listening():
        await until(lambda: None in asked)
        before = len(asked)
        await asyncio.sleep(0.5)

        assert len(asked) == before


async def test_a_key_is_heard_after_any_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    with waits(monkeypatch) as asked, listening() as (driver, keyboard):
        await until(lambda: None in asked)
        os.write(keyboard, b"j")
        await until(lambda: "j" in driver.keys)


async def test_escape_alone_is_a_key_although_nothing_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with waits(monkeypatch) as asked, listening() as (driver, keyboard):
        await until(lambda: None in asked)
        os.write(keyboard, b"\x1b")
        await until(lambda: driver.keys == ["escape"])


async def test_it_stops_and_starts_again_as_when_the_program_is_suspended() -> None:
    with listening() as (driver, keyboard):
        driver.exit_event.set()
        driver.thread.join(10.0)
        driver.exit_event.clear()
        again = threading.Thread(target=driver.run_input_thread)
        again.start()
        os.write(keyboard, b"k")
        await until(lambda: "k" in driver.keys)
        driver.exit_event.set()
        again.join(10.0)

        assert not again.is_alive()


def test_the_dashboard_uses_it_in_a_terminal_and_only_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = MpwatchApp(ScriptedSource(healthy_job()))

    assert made.get_driver_class() is QuietDriver
    monkeypatch.setattr(App, "get_driver_class", lambda self: WebDriver)
    assert made.get_driver_class() is WebDriver
    assert issubclass(QuietDriver, LinuxDriver)


def is_heard(bell: Bell) -> bool:
    """Whether a selector would wake up for it."""
    with selectors.PollSelector() as selector:
        selector.register(bell, selectors.EVENT_READ)
        return bool(selector.select(0))


def test_a_bell_that_many_ring_at_once_is_quiet_after_one_clearing() -> None:
    bell = Bell()
    for _ in range(50):
        ringers = [threading.Thread(target=bell.set) for _ in range(8)]
        for ringer in ringers:
            ringer.start()
        for ringer in ringers:
            ringer.join()
        assert bell.is_set()
        assert is_heard(bell)
        bell.clear()
        assert not bell.is_set()
        assert not is_heard(bell)
    bell.close()


def test_a_bell_is_quiet_after_clearing_whatever_lies_in_its_pipe() -> None:
    bell = Bell()
    bell.set()
    os.write(bell._writer, b"!" * 200)
    bell.clear()
    bell.clear()
    assert not is_heard(bell)
    bell.set()
    assert is_heard(bell)
    bell.close()


def test_a_bell_says_the_same_to_both_who_wait_whoever_rings_while_it_is_cleared() -> None:
    bell = Bell()

    def ring() -> None:
        for _ in range(2000):
            bell.set()

    ringer = threading.Thread(target=ring)
    ringer.start()
    while ringer.is_alive():
        bell.clear()
    ringer.join()
    assert is_heard(bell) == bell.is_set()
    bell.close()
