from __future__ import annotations

from mpwatch.model.events import HookStatus
from mpwatch.observe.state.event_log import SILENCE_LOGGED_S, EventLog, HookStateLog
from tests.builders.samples import MAIN


class Log:
    """A log of one hook, with the states that it logged."""

    def __init__(self) -> None:
        self.log = EventLog()
        self.hooks = HookStateLog()

    def hear(self, at_s: float, state: str, reason: str = "") -> None:
        self.hooks.add(HookStatus(MAIN, at_s, state, reason), self.log)  # type: ignore[arg-type]

    def look(self, at_s: float) -> None:
        self.hooks.add_silences(at_s, self.log)

    def told(self) -> list[tuple[float, str]]:
        return [(each.at_s, each.words.split(" is ")[1]) for each in self.log.entries]


def test_repeated_short_silences_of_a_hook_are_not_logged() -> None:
    log = Log()
    log.hear(1.0, "ready")
    for number in range(50):
        log.hear(2.0 + number, "silent", "no answer")
        log.look(2.2 + number)
        log.hear(2.4 + number, "ready")
        log.look(2.9 + number)

    assert log.told() == [(1.0, "ready")]


def test_a_lasting_silence_is_logged_with_its_beginning() -> None:
    log = Log()
    log.hear(1.0, "ready")
    log.hear(2.0, "silent", "no answer")
    log.look(2.0 + SILENCE_LOGGED_S)
    log.look(9.0)
    log.hear(9.5, "ready")

    assert log.told() == [(1.0, "ready"), (2.0, "silent: no answer"), (9.5, "ready")]


def test_a_hook_with_a_late_hello_is_logged_as_ready() -> None:
    log = Log()
    log.hear(1.0, "silent", "no hello")
    log.hear(1.1, "ready")

    assert log.told() == [(1.1, "ready")]


def test_a_hook_that_exits_while_silent_is_logged_as_exited() -> None:
    log = Log()
    log.hear(1.0, "ready")
    log.hear(2.0, "silent", "no answer")
    log.hear(2.3, "gone", "the connection ended")
    log.look(9.0)

    assert log.told() == [(1.0, "ready"), (2.3, "gone: the connection ended")]
