"""Detach the hook from one running process.

The result depends on what procfs shows of the process before and afterwards, not on the hook's
answer, and not on paths in the process's environment.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace

from mpwatch.attach.inject import blocked_words, deliver
from mpwatch.attach.methods import PENDING_CALL, Attempt, cancel_call
from mpwatch.attach.outcomes import Answer, Begun, Detached, Refused, hook_words, not_logged
from mpwatch.attach.payload import exchange_dir, install
from mpwatch.attach.target import Target, has_ended, read_target
from mpwatch.collect.hook import discovery
from mpwatch.collect.hook.discovery import NoHook, Presence
from mpwatch.collect.host import frozen_disk
from mpwatch.hook import wire
from mpwatch.model.ids import ProcessId
from mpwatch.model.sanitize import clean

SOCKET, CALLED_OFF = "socket", "called off"
_POLL_S = 0.005
_LEFT_LIMIT = 64


def detach(
    process: ProcessId,
    *,
    timeout_s: float = 1.0,
    may_be_asleep: bool = False,
    begun: Begun = not_logged,
) -> Detached:
    """Detach the hook from one process: by a request to the hook, else by its interpreter.

    Args:
        process: The target.
        timeout_s: How long each of the two may take.
        may_be_asleep: The process was just forked from one with the hook, so it may have a hook
            without files.
        begun: Called before the target is changed.
    """
    started_s = time.monotonic()
    try:
        target = read_target(process)
        before = discovery.find(target.sample())
        outcome = _detach(target, before, timeout_s, may_be_asleep, begun)
        if outcome.state == "absent":
            if _called_off(target, begun) and not outcome.method:
                outcome = replace(outcome, method=CALLED_OFF)
            outcome = replace(outcome, left=(*outcome.left, *_tidy(target, before)))
    except Refused as refusal:
        outcome = Detached(process, "silent", refusal.reason, refusal.fix)
    except OSError as error:
        outcome = Detached(process, "silent", f"it could not be examined: {error}")
    if has_ended(process):
        # What fails because the process ends meanwhile looks like many other failures.
        outcome = replace(outcome, state="absent", reason="the process has ended", fix="")
    return replace(outcome, took_s=time.monotonic() - started_s)


def _detach(
    target: Target, before: Presence, timeout_s: float, may_be_asleep: bool, begun: Begun
) -> Detached:
    """Ask the hook to detach, else make the interpreter unload it, and check the result."""
    process = target.process
    try:
        client = discovery.connect(target.sample())
    except NoHook:
        if not before and not may_be_asleep:
            return Detached(process, "absent", had_hook=False)
        return _unload(target, timeout_s, begun)
    with client:
        hello = discovery.read_frame(client, wire.HELLO, timeout_s)
        if hello is None:
            return _unload(target, timeout_s, begun)
        hook = hook_words(hello.get("release"), hello.get("version"))
        begun(process, SOCKET, hook)
        try:
            request = json.dumps({"ask": "detach", "id": 1}).encode()
            client.sendall(wire.pack_frame(wire.REQUEST, request))
        except OSError:
            return _unload(target, timeout_s, begun)
        goodbye = discovery.read_frame(client, wire.GOODBYE, timeout_s) or {}
    if _remains(target, timeout_s):
        outcome = _unload(target, timeout_s, begun)
        return outcome if outcome.hook else replace(outcome, hook=hook)
    return Detached(process, "absent", method=SOCKET, left=_left(goodbye), hook=hook)


def _unload(target: Target, timeout_s: float, begun: Begun) -> Detached:
    """Make the interpreter unload a hook that does not answer, between two bytecodes."""
    answer, stopped_s = deliver(Attempt(target, begun=begun), "unload", timeout_s)
    outcome = _unloaded(target, answer, timeout_s)
    hook = "" if answer is None else hook_words(answer.release, answer.version)
    return replace(outcome, method=PENDING_CALL, stopped_s=stopped_s, hook=hook)


def _unloaded(target: Target, answer: Answer | None, timeout_s: float) -> Detached:
    """The result of an `unload`, from the target's answer and from what is left in the process."""
    process = target.process
    if answer is None:
        reason = f"{blocked_words(target)}; the hook is detached when it runs Python code again"
        return Detached(process, "pending", reason)
    if not answer.is_success:
        return Detached(process, "silent", f"the hook could not be detached: {answer.reason}")
    there = _remains(target, timeout_s)
    if there:
        return Detached(process, "silent", f"the hook is still there: {there.words}")
    return Detached(process, "absent", left=answer.left)


def _remains(target: Target, within_s: float) -> Presence:
    """What is left of the hook in a process after at most `within_s`; nothing if it has exited."""
    sample, deadline_s = target.sample(), time.monotonic() + within_s
    while True:
        try:
            there = discovery.find(sample)
        except (FileNotFoundError, ProcessLookupError):
            return Presence()
        if not there or time.monotonic() > deadline_s:
            return there
        time.sleep(_POLL_S)


def _left(goodbye: dict[str, object]) -> tuple[str, ...]:
    """What the hook reports that it could not undo, see `wire.GOODBYE`."""
    left = goodbye.get("left")
    if not isinstance(left, dict):
        return ()
    entries = list(left.items())[:_LEFT_LIMIT]
    return tuple(clean(f"{name}: {reason}", 300) for name, reason in entries)


def _called_off(target: Target, begun: Begun) -> bool:
    """Call off an injection that had not been completed; whether there was one."""
    left = exchange_dir.find(target)
    if left is None:
        return False
    begun(target.process, CALLED_OFF, "")
    left.remove()
    cancel_call(target)
    return True


def _tidy(target: Target, before: Presence) -> tuple[str, ...]:
    """Remove the remains of a hook: its files and unused copies; what stays, in sentences."""
    folder = before.folder
    if folder and not exchange_dir.takes_writes(target, folder):
        return (f"the files of the hook in {clean(folder)}: {frozen_disk.SENTENCE}",)
    if folder:
        discovery.remove_left_files(target.sample(), folder)
    install.remove_unused(target)
    return ()
