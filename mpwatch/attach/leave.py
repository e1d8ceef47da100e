"""Taking the hook out of one running process."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace

from mpwatch.attach import exchange_dir, payload_install
from mpwatch.attach.bring import blocked_words, deliver, read_frame
from mpwatch.attach.methods import METHODS, Visit, call_off
from mpwatch.attach.outcome import Answer, Detached, Refused
from mpwatch.attach.target import Target, read_target
from mpwatch.collect import hook_socket
from mpwatch.collect.hook_socket import NO_HOOK, NoHook
from mpwatch.hook import wire
from mpwatch.model.ids import ProcessId

ANSWER_WITHIN_S = 1.0
_LOOK_S = 0.005


def detach(process: ProcessId, *, timeout_s: float = 1.0, may_be_asleep: bool = False) -> Detached:
    """Take the hook out of one process: ask it, or else have the interpreter do it.

    Args:
        process: Which one.
        timeout_s: How long each of the two may take.
        may_be_asleep: It was forked from a process with the hook a moment ago, so there may be one
            in it that has no files yet.
    """
    started_s = time.monotonic()
    try:
        target = read_target(process)
        outcome = _leave(target, timeout_s, may_be_asleep)
        if outcome.state == "absent" and _tidy(target) and not outcome.method:
            outcome = replace(outcome, method="called off")
    except Refused as refusal:
        gone = refusal.reason == "the process has ended"
        outcome = Detached(process, "absent" if gone else "silent", refusal.reason, refusal.fix)
    except OSError as error:
        outcome = Detached(process, "silent", f"it could not be examined: {error}")
    return replace(outcome, took_s=time.monotonic() - started_s)


def _leave(target: Target, timeout_s: float, may_be_asleep: bool) -> Detached:
    """Ask the hook, and see that it is gone."""
    process = target.process
    try:
        client = hook_socket.connect(target.sample())
    except NoHook as none:
        if str(none) == NO_HOOK and not _files_left(target) and not may_be_asleep:
            return Detached(process, "absent")
        return _have_it_done(target, timeout_s)
    with client:
        if read_frame(client, wire.HELLO, timeout_s) is None:
            return _have_it_done(target, timeout_s)
        try:
            request = json.dumps({"ask": "detach", "id": 1}).encode()
            client.sendall(wire.pack_frame(wire.REQUEST, request))
        except OSError:
            return _have_it_done(target, timeout_s)
        read_frame(client, wire.GOODBYE, timeout_s)
    if _files_gone(target, timeout_s):
        return Detached(process, "absent", method="socket")
    return _have_it_done(target, timeout_s)


def _have_it_done(target: Target, timeout_s: float) -> Detached:
    """The hook does not answer: let the interpreter take it out between two bytecodes."""
    answer, method, stopped_s = deliver(Visit(target), "unload", METHODS, timeout_s)
    outcome = _unloaded(target, answer, timeout_s)
    return replace(outcome, method=method, stopped_s=stopped_s)


def _unloaded(target: Target, answer: Answer | None, timeout_s: float) -> Detached:
    """What the target's answer to `unload` means, once its files have been looked for."""
    process = target.process
    if answer is None:
        reason = f"{blocked_words(target)}; the hook leaves when it comes back to Python"
        return Detached(process, "pending", reason)
    if not answer.is_success:
        return Detached(process, "silent", f"the hook could not leave: {answer.reason}")
    if not _files_gone(target, timeout_s):
        return Detached(process, "silent", "the hook said that it left, but its files are there")
    return Detached(process, "absent")


def _files_gone(target: Target, within_s: float) -> bool:
    """Whether socket, ring and notes are gone, given a moment."""
    deadline_s = time.monotonic() + within_s
    while _files_left(target):
        if time.monotonic() > deadline_s:
            return False
        time.sleep(_LOOK_S)
    return True


def _files_left(target: Target) -> bool:
    sample = target.sample()
    stem = hook_socket.stem(sample)
    suffixes = (wire.SOCKET_SUFFIX, wire.RING_SUFFIX, wire.NOTES_SUFFIX)
    return any(
        os.path.lexists(f"{folder}/{stem}{suffix}")
        for folder in hook_socket.folders(sample, "/proc")
        for suffix in suffixes
    )


def _tidy(target: Target) -> bool:
    """Remove what attaching left: exchange directory, queued call, unused copies of the hook.

    Returns:
        Whether there was an exchange directory: an injection that had not been completed.
    """
    left = exchange_dir.find(target)
    if left is not None:
        left.remove()
        call_off(target)
    payload_install.remove_unused(target)
    return left is not None
