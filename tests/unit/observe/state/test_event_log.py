"""The log is bounded, and known errors are matched once and kept longer than other entries."""

from __future__ import annotations

import pickle
from collections.abc import Mapping

import pytest

from mpwatch.describe.error_messages import tags_of
from mpwatch.observe.state import event_log
from mpwatch.observe.state.event_log import KEPT, REPEATS_KEPT, EventLog
from tests.builders.samples import MAIN, WORKER_0, WORKER_1

ERROR = "ValueError: too many fds"


def test_an_error_is_kept_when_the_log_has_dropped_it() -> None:
    log = EventLog()
    log.add(1.0, "exception", MAIN, ERROR)
    for _ in range(KEPT):
        log.add(2.0, "start", MAIN, "start")

    assert (len(log.entries), log.dropped) == (KEPT, 1)
    assert [entry.words for entry in log.errors] == [ERROR]
    assert "forkserver-too-many-fds" in log.errors[0].tags


def test_a_process_that_fails_in_a_loop_does_not_displace_the_errors_of_others() -> None:
    log = EventLog()
    log.add(1.0, "exception", WORKER_0, ERROR)
    for _ in range(600):  # more than are kept
        log.add(2.0, "exception", WORKER_1, ERROR)

    kept = [entry.process for entry in log.errors]
    assert kept == [WORKER_0] + [WORKER_1] * REPEATS_KEPT


def test_errors_of_ever_new_processes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "KEPT", 400)
    monkeypatch.setattr(event_log, "ERRORS_KEPT", 100)
    log = EventLog()
    sizes = []
    for number in range(1200):
        log.add(1.0, "exception", MAIN._replace(pid=1000 + number), ERROR)
        sizes.append(len(pickle.dumps(log)) if (number + 1) % 100 == 0 else 0)

    assert len(log.errors) == 100
    assert max(sizes) <= 1.2 * max(sizes[:400])


def test_each_entry_is_matched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    matched = []

    def counted(kind: str, words: str, details: Mapping[str, object]) -> tuple[str, ...]:
        matched.append(words)
        return tags_of(kind, words, details)

    monkeypatch.setattr("mpwatch.describe.error_messages.tags_of", counted)
    log = EventLog()
    log.add(1.0, "exception", MAIN, ERROR)
    for _ in range(5):
        assert len(log.errors) == len(log.entries) == 1

    assert matched == [ERROR]
