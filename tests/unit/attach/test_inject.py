"""`inject` and `detach` with answers of a payload that real targets seldom give."""

from __future__ import annotations

import os
import socket

import pytest

from mpwatch.attach import inject
from mpwatch.attach.outcomes import PayloadAnswer
from mpwatch.collect.hook import discovery
from mpwatch.collect.hook.discovery import NoHook
from mpwatch.collect.process.procfs import stat_of


@pytest.mark.parametrize(("socket_path", "asked"), [("", 4), ("/run/user/0/mpwatch/1.sock", 1)])
def test_a_hook_that_named_no_socket_is_ready_once_it_listens(
    monkeypatch: pytest.MonkeyPatch, socket_path: str, asked: int
) -> None:
    calls = []

    def connect(*_: object) -> socket.socket:
        calls.append(1)
        if len(calls) < 4:
            raise NoHook("nobody listens")
        return socket.socket()

    answer = PayloadAnswer("loaded", socket=socket_path)
    monkeypatch.setattr(discovery, "connect", connect)
    monkeypatch.setattr(inject, "deliver", lambda *_: (answer, 0.001))

    attached = inject.inject(stat_of(os.getpid()).process, timeout_s=60)

    assert (attached.state, attached.method) == ("ready", "pending call")
    assert len(calls) == asked


def test_what_a_target_could_not_unload_is_not_reported_as_detached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where no part of the hook is seen from outside afterwards."""
    answer = PayloadAnswer("failed", "the hook did not leave")
    monkeypatch.setattr(inject, "deliver", lambda *_: (answer, 0.001))

    outcome = inject.detach(stat_of(os.getpid()).process, may_be_asleep=True)

    assert (outcome.state, outcome.had_hook) == ("silent", True)
    assert outcome.reason == "the hook could not be detached: the hook did not leave"
    assert outcome.is_attached
