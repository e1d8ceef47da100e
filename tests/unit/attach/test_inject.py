"""`inject` and `detach` with answers of a payload that real targets seldom give."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from types import SimpleNamespace
from typing import Any

import pytest

from mpwatch.attach import inject, methods
from mpwatch.attach.outcomes import PayloadAnswer, Refused, still_attached
from mpwatch.attach.payload import compiled_payload, exchange_dir, install
from mpwatch.attach.payload.program import LATER
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


def test_a_stopped_process_whose_call_has_not_returned_yet_still_has_the_hook(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hook answers some microseconds before the call that has loaded it returns."""

    def refuse(*_: object) -> None:
        raise Refused("it is stopped", "kill -CONT 1")

    monkeypatch.setattr(inject, "cancel_call", lambda *_, **_more: True)
    monkeypatch.setattr(inject, "deliver", refuse)

    outcome = inject.detach(stat_of(os.getpid()).process, may_be_asleep=True)

    assert (outcome.state, outcome.reason, outcome.fix) == (
        "silent", "it is stopped", "kill -CONT 1",
    )  # fmt: skip
    assert still_attached([outcome], 1) == "The hook is still attached in 1 of 1 processes"


@pytest.mark.parametrize("unloads", [False, True])
@pytest.mark.parametrize("action", ["load", "unload"])
def test_only_the_answer_to_the_same_action_of_another_observer_is_waited_for(
    action: str, unloads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise an injection would report a detach as its own success, and the reverse."""
    answer = PayloadAnswer("unloaded" if unloads else "loaded")
    theirs = SimpleNamespace(
        is_ours=False,
        unloads=unloads,
        answer=lambda: None,
        answer_within=lambda _timeout_s: answer,
        handed_over_at=lambda: None,
        is_stale=lambda: False,
    )
    for module, name, result in (
        (inject, "require_usable", None),
        (install, "directory_for", ""),
        (compiled_payload, "payload_for", b""),
        (exchange_dir, "runtime_directory", ""),
        (exchange_dir, "name_for", ""),
        (exchange_dir, "create", theirs),
    ):
        monkeypatch.setattr(module, name, lambda *_, _result=result, **_more: _result)
    monkeypatch.setattr(methods, "memory_claimed", contextlib.nullcontext)
    monkeypatch.setattr(methods, "PASSES_WITHIN_S", 0.0)
    attempt: Any = SimpleNamespace(
        target=None,
        step=lambda _name: None,
        interpreter=SimpleNamespace(version=(3, 11)),
        waiting=contextlib.nullcontext,
    )

    if unloads == (action == "unload"):
        assert inject.deliver(attempt, action, 1.0) == (answer, None)
    else:
        with pytest.raises(Refused, match="an injection or a detach has not finished") as refusal:
            inject.deliver(attempt, action, 1.0)
        assert refusal.value.passes


@pytest.mark.parametrize(
    ("timeout_s", "error", "raised"),
    [
        (60.0, KeyboardInterrupt(), KeyboardInterrupt),
        (-inject.IMPORT_WITHIN_S - 1, None, Refused),
    ],
    ids=["interrupted", "too late"],
)
def test_an_injection_that_ends_while_the_program_imports_leaves_no_directory(
    timeout_s: float,
    error: BaseException | None,
    raised: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the next one would take it for a call that is under way."""
    removed: list[int] = []
    exchange = SimpleNamespace(is_ours=True, remove=lambda: removed.append(1))
    answer = PayloadAnswer(LATER)

    def sleep(_seconds: float) -> None:
        assert error is not None
        raise error

    monkeypatch.setattr(inject, "deliver_once", lambda *_: (answer, 0.001, exchange))
    monkeypatch.setattr(time, "sleep", sleep)
    attempt: Any = SimpleNamespace()

    with pytest.raises(raised):
        inject.deliver(attempt, "load", timeout_s)

    assert removed == [1]
