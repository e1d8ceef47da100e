"""Inject the hook into one running process, and detach it.

The result of a detach depends on what procfs shows of the process before and afterwards, not on the
hook's answer, and not on paths in the process's environment.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import replace

from mpwatch.attach import methods
from mpwatch.attach.methods import (
    PENDING_CALL,
    Attempt,
    Waiting,
    call_failure,
    call_is_under_way,
    cancel_call,
    queue_call,
    require_same_clocks,
    require_usable,
)
from mpwatch.attach.native.tracer import Step, no_step
from mpwatch.attach.outcomes import (
    CALLED_OFF,
    DONE,
    SOCKET,
    Attached,
    Begun,
    Detached,
    PayloadAnswer,
    Refused,
    hook_words,
    not_logged,
)
from mpwatch.attach.payload import compiled_payload, exchange_dir, install
from mpwatch.attach.payload.exchange_dir import ExchangeDir
from mpwatch.attach.payload.program import LATER
from mpwatch.attach.target import Target, has_ended, read_target
from mpwatch.collect.hook import discovery
from mpwatch.collect.hook.discovery import NoHook, Presence
from mpwatch.collect.host import frozen_disk
from mpwatch.collect.process.syscall_waits import call_name, names, parse_syscall
from mpwatch.hook import wire
from mpwatch.model.ids import ProcessId
from mpwatch.model.sanitize import clean

LOST_AFTER_SWITCHES = 8
"""Context switches of the main thread after which a queued call that has not run counts as lost."""
IMPORT_WITHIN_S = 2.0
"""Extra time for a program that is importing modules."""
BEGUN_WITHIN_S = 2.0
"""Extra time for an injection that has begun when it is called off."""
_WAS_CALLED_OFF = "it was called off"
_IMPORT_PAUSE_S = 0.02
_SOCKET_POLL_S = 0.01
_FAILURE_POLL_S = 0.1
"""Interval of reading from the target's memory whether its call has failed."""
_PASSES_PAUSE_S = 0.02
_DETACH_POLL_S = 0.005
_LEFT_LIMIT = 64
_UNDER_WAY = (
    "an injection has begun in it and has not ended; it was called off, so try again in a moment"
)


def inject(
    process: ProcessId,
    *,
    timeout_s: float = 1.0,
    step: Step = no_step,
    again: bool = False,
    waiting: Waiting = contextlib.nullcontext,
    begun: Begun = not_logged,
) -> Attached:
    """Inject the hook into one process.

    A blocked main thread is not interrupted, because no way to do so is safe:

    - A signal with a Python handler would work (the parent of a DataLoader has one for SIGCHLD):
      the call runs with the handler's first bytecode. But an observer cannot know whether that
      handler, or one that it calls, treats the exit of a child as the end of the job.
    - A signal without such a handler is ignored by the kernel, or ends the process.
    - Making the system call fail with EINTR does not help: Python then only checks for signals and
      repeats the call (PEP 475, `PyErr_CheckSignals`), and other callers report an error.
    - A call into the interpreter while the thread is inside a system call could deadlock: the
      thread does not hold the GIL there, and another thread may hold any lock.

    So the call stays queued, and the hook is loaded with the first bytecode that runs: when the
    wait is over, or when the program receives a signal and handles it.

    If the target is a child of the calling process, no thread may wait for its exit meanwhile: the
    kernel would report the ptrace stops to that thread (wait(2), `__WNOTHREAD`).

    Args:
        process: The target.
        timeout_s: How long to wait for the hook after the call was queued; then it is `pending`.
        step: Called after each step with its name, for tests.
        again: An injection was tried before. It is repeated if it failed for a temporary reason or
            its call was lost, and not if it has been cancelled since.
        waiting: A context entered for as long as this thread only waits for the target.
        begun: Called before the target is changed.
    """
    started_s = time.monotonic()
    try:
        target = read_target(process)
        already = _already_there(target)
        if already is None and again and exchange_dir.find(target) is None:
            already = Attached(process, "absent", reason=_WAS_CALLED_OFF)
        if already is None:
            require_same_clocks(target)
            already = _inject(Attempt(target, step, waiting, begun), timeout_s)
    except Refused as found:
        already = Attached(
            process, "absent", reason=found.reason, fix=found.fix, passes=found.passes
        )
    except OSError as error:
        already = Attached(process, "absent", reason=f"it could not be examined: {error}")
    if already.state == "absent" and has_ended(process):
        # What fails because the process ends meanwhile looks like many other failures.
        already = Attached(process, "absent", reason="the process has ended")
    return _timed(already, started_s)


def deliver(
    attempt: Attempt, action: str, timeout_s: float
) -> tuple[PayloadAnswer | None, float | None]:
    """Make the target run the payload.

    Args:
        attempt: The attempt and its target.
        action: `load` or `unload`.
        timeout_s: How long to wait for the answer.

    Returns:
        The answer (`None` if there is none yet), and for how many seconds the target's main thread
        was stopped (`None` if it was not).

    Raises:
        Refused: It cannot be done; where the reason is temporary, after `methods.PASSES_WITHIN_S`.
    """
    began_s = time.monotonic()
    later: ExchangeDir | None = None
    while True:
        try:
            answer, stopped_s, exchange = deliver_once(attempt, action, timeout_s, later)
        except Refused as refusal:
            later = None
            if not refusal.passes or time.monotonic() > began_s + methods.PASSES_WITHIN_S:
                raise
            with attempt.waiting():
                time.sleep(_PASSES_PAUSE_S)
            attempt.begin_again()
            continue
        if answer is None or answer.state != LATER:
            return answer, stopped_s
        later = exchange if exchange.is_ours else None
        try:
            if time.monotonic() > began_s + timeout_s + IMPORT_WITHIN_S:
                reason = "it imports modules, or an audit hook of it waits; try again in a moment"
                raise Refused(reason, passes=True)
            time.sleep(_IMPORT_PAUSE_S)
        except BaseException:
            if later is not None:
                later.remove()
            raise


def deliver_once(
    attempt: Attempt, action: str, timeout_s: float, later: ExchangeDir | None = None
) -> tuple[PayloadAnswer | None, float | None, ExchangeDir]:
    """Make the target run the payload once.

    Args:
        attempt: The attempt and its target.
        action: `load` or `unload`.
        timeout_s: How long to wait for the answer.
        later: The directory of a call that answered `LATER`. It stays while the call is repeated,
            so that the action can be called off in between.

    Returns:
        As `deliver`, and the exchange directory, which is gone unless the answer is `LATER`.

    Raises:
        Refused: As `deliver`.
    """
    with contextlib.ExitStack() as claims:
        try:
            require_usable(attempt)
            claims.enter_context(methods.memory_claimed(attempt.target))
            exchange = later or _create_exchange(attempt, action)
            if later is not None and not later.renew():
                raise Refused(_WAS_CALLED_OFF)
        except BaseException:
            if later is not None:
                later.remove()
            raise
        return _deliver_in(exchange, attempt, action, timeout_s)


def _deliver_in(
    exchange: ExchangeDir, attempt: Attempt, action: str, timeout_s: float
) -> tuple[PayloadAnswer | None, float | None, ExchangeDir]:
    """As `deliver_once`, where the exchange directory is there."""
    target = attempt.target
    attempt.step("exchange made")
    if not exchange.is_ours and _is_lost(exchange, attempt):
        exchange.remove()
        exchange = _create_exchange(attempt, action)
    if not exchange.is_ours:
        if exchange.unloads != (action == "unload"):
            raise Refused("an injection or a detach has not finished in it", passes=True)
        return _wait(attempt, exchange, timeout_s), None, exchange
    try:
        attempt.begin()
        stopped_s = queue_call(attempt, exchange)
    except BaseException:
        exchange.remove()
        raise
    with contextlib.suppress(Refused):
        attempt.read_again()  # under load the call itself may take many context switches
    exchange.mark("handed-over", attempt.target.turns)
    attempt.step("handed over")
    answer = _wait(attempt, exchange, timeout_s)
    if answer is None:
        failure = call_failure(target, attempt.block_at)
        if not failure:
            exchange.mark("unattended")
        answer = exchange.answer()  # it may have been written between the last check and the mark
        if answer is None and failure:
            answer = PayloadAnswer("failed", failure)
    if answer is not None:
        if answer.state != LATER:
            exchange.remove()
        if attempt.block_at is not None:
            cancel_call(target, attempt.block_at)
    return answer, stopped_s, exchange


def _create_exchange(attempt: Attempt, action: str) -> ExchangeDir:
    """Create the exchange directory with the payload for an action."""
    target = attempt.target
    directory = install.directory_for(target) if action == "load" else ""
    runtime = exchange_dir.runtime_directory(target)
    name = exchange_dir.name_for(target)
    version = attempt.interpreter.version
    payload = compiled_payload.payload_for(version, action, directory, name)
    return exchange_dir.create(target, runtime, payload, unloads=action == "unload")


def _wait(attempt: Attempt, exchange: ExchangeDir, timeout_s: float) -> PayloadAnswer | None:
    """The answer, or `None` after the timeout or once the call has failed without one."""
    deadline_s = time.monotonic() + timeout_s
    with attempt.waiting():
        while True:
            left_s = deadline_s - time.monotonic()
            answer = exchange.answer_within(min(_FAILURE_POLL_S, max(0.0, left_s)))
            if answer is not None or left_s <= _FAILURE_POLL_S:
                return answer
            if call_failure(attempt.target, attempt.block_at):
                return exchange.answer()


def _is_lost(exchange: ExchangeDir, attempt: Attempt) -> bool:
    """Whether the payload in an existing directory has been run already, or never will be.

    A call that was queued before the interpreter had initialised itself is lost. The sign of that:
    the main thread has run since, and the directory has no answer, although no call is under way.
    An answer that its observer still waits for is not lost.
    """
    if exchange.answer() is not None:
        return exchange.is_unattended()
    turns = exchange.handed_over_at()
    if turns is None:
        return exchange.is_stale()
    has_run = attempt.target.turns > turns + LOST_AFTER_SWITCHES
    return has_run and not call_is_under_way(attempt.target)


def _inject(attempt: Attempt, timeout_s: float) -> Attached:
    """Inject the hook and describe the result."""
    process = attempt.target.process
    answer, stopped_s = deliver(attempt, "load", timeout_s)
    if answer is not None and answer.state == DONE:
        is_under_way = cancel_call(attempt.target, attempt.block_at, BEGUN_WITHIN_S)
        if is_under_way or not _remains(attempt.target, 0.0):
            return Attached(process, "absent", PENDING_CALL, _WAS_CALLED_OFF, stopped_s=stopped_s)
    if answer is not None and answer.is_success:
        if not answer.socket:
            _wait_for_socket(attempt, timeout_s)
        return Attached(process, "ready", PENDING_CALL, stopped_s=stopped_s)
    if answer is not None:
        reason = f"the hook could not be loaded: {answer.reason}"
        return Attached(process, "absent", PENDING_CALL, reason, stopped_s=stopped_s)
    reason = "an injection has begun in it and has not ended"
    if not call_is_under_way(attempt.target):
        reason = f"{blocked_words(attempt.target)}; the hook arrives when it comes back to Python"
    return Attached(process, "pending", PENDING_CALL, reason, stopped_s=stopped_s)


def _wait_for_socket(attempt: Attempt, timeout_s: float) -> None:
    """Wait until the hook listens.

    On a disk its own thread opens the socket, and the hook's answer does not wait for that where
    the program's threads keep the GIL busy. A hook that finds no place for a socket never listens.
    """
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        try:
            discovery.connect(attempt.target.sample()).close()
        except NoHook:
            with attempt.waiting():
                time.sleep(_SOCKET_POLL_S)
        else:
            return


def _already_there(target: Target) -> Attached | None:
    """The result if the process has a hook already, else `None`."""
    try:
        client = discovery.connect(target.sample())
    except NoHook:
        return None
    with client:
        hello = discovery.read_frame(client, wire.HELLO, discovery.HELLO_WITHIN_S)
    if hello is None:
        reason = "the hook is attached, but silent: the GIL is held, or the process is stopped"
        return Attached(target.process, "silent", "already there", reason)
    left = exchange_dir.find(target)
    if left is not None:
        if call_is_under_way(target):
            return None  # its answer says what becomes of the hook
        left.remove()
        cancel_call(target)
    return Attached(target.process, "ready", "already there")


def blocked_words(target: Target) -> str:
    """Why the main thread is not running Python code, as a clause for the user."""
    thread = f"/proc/{target.pid}/task/{target.pid}"
    call, channel = None, ""
    with contextlib.suppress(OSError):
        with open(f"{thread}/syscall", "rb") as file:
            call = parse_syscall(file.read(512))
        with open(f"{thread}/wchan", "rb") as file:
            channel = file.read(64).decode("ascii", "replace")
    if call is None or call.number < 0:
        return "its main thread is busy in native code"
    name = call_name(names(os.uname().machine), call, channel) or f"system call {call.number}"
    if name in ("read", "recvfrom", "accept", "accept4", "recvmsg") and call.arguments:
        fd = call.arguments[0]
        try:
            where = clean(os.readlink(f"/proc/{target.pid}/fd/{fd}"))
        except OSError:
            where = "?"
        return f"its main thread is blocked in {name}({fd}), {where}"
    return f"its main thread is blocked in {name}"


def _timed(attached: Attached, started_s: float) -> Attached:
    return replace(attached, took_s=time.monotonic() - started_s)


def detach(
    process: ProcessId,
    *,
    timeout_s: float = 1.0,
    may_be_asleep: bool = False,
    begun: Begun = not_logged,
) -> Detached:
    """Detach the hook from one process: by a request to the hook, else by its interpreter.

    An injection that is not completed is called off first. If it has begun, its end is waited for,
    so that no hook arrives after it was found that there is none; the result is `pending` if that
    takes longer than `timeout_s` and `BEGUN_WITHIN_S`.

    Args:
        process: The target.
        timeout_s: How long each of the two may take.
        may_be_asleep: The process was forked from one with the hook, so it may have a hook that has
            no thread, file and socket before its first record.
        begun: Called before the target is changed.
    """
    is_called_off = is_under_way = False
    try:
        target = read_target(process)
        is_called_off, is_under_way = _call_off(target, timeout_s, begun)
        before = discovery.find(target.sample())
        outcome = _detach(target, before, timeout_s, may_be_asleep, begun)
        if outcome.state == "absent" and not is_under_way:
            _call_off_unload(target)
            outcome = replace(outcome, left=(*outcome.left, *_tidy(target, before)))
    except Refused as refusal:
        outcome = Detached(process, "silent", refusal.reason, refusal.fix)
        is_under_way = isinstance(refusal, methods.NotFinished)
    except OSError as error:
        outcome = Detached(process, "silent", f"it could not be examined: {error}")
    if is_under_way:
        outcome = replace(outcome, state="pending", reason=_UNDER_WAY, method=CALLED_OFF)
    elif is_called_off and not outcome.method and not outcome.is_attached:
        outcome = replace(outcome, method=CALLED_OFF)
    if has_ended(process):
        # What fails because the process ends meanwhile looks like many other failures.
        outcome = replace(outcome, state="absent", reason="the process has ended", fix="")
    return outcome


def _detach(
    target: Target, before: Presence, timeout_s: float, may_be_asleep: bool, begun: Begun
) -> Detached:
    """Ask the hook to detach, else make the interpreter unload it, and check the result."""
    process = target.process
    try:
        client = discovery.connect(target.sample())
    except NoHook:
        if not before.is_awake and not may_be_asleep:
            return Detached(process, "absent", had_hook=False)
        outcome = _unload(target, timeout_s, begun)
        was_asleep = bool(outcome.hook) or outcome.state != "absent"
        return replace(outcome, had_hook=bool(before) or was_asleep)
    with client:
        hello = discovery.read_frame(client, wire.HELLO, timeout_s)
        if hello is None:
            return _unload(target, timeout_s, begun)
        hook = hook_words(hello.get("release"), hello.get("version"))
        since_s = _boot_time_s(hello.get("since_ns"))
        begun(process, SOCKET, hook)
        try:
            request = json.dumps({"ask": "detach", "id": 1}).encode()
            client.sendall(wire.pack_frame(wire.REQUEST, request))
        except OSError:
            return _unload(target, timeout_s, begun)
        goodbye = discovery.read_frame(client, wire.GOODBYE, timeout_s) or {}
    if _remains(target, timeout_s):
        outcome = _unload(target, timeout_s, begun)
        return replace(outcome, hook=outcome.hook or hook, since_s=since_s)
    left = _left(goodbye)
    return Detached(process, "absent", method=SOCKET, left=left, hook=hook, since_s=since_s)


def _boot_time_s(monotonic_ns: object) -> float | None:
    """A time of CLOCK_MONOTONIC as one of CLOCK_BOOTTIME; `None` if it is no number."""
    if not isinstance(monotonic_ns, int):
        return None
    ago_s = time.clock_gettime(time.CLOCK_MONOTONIC) - monotonic_ns / 1e9
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ago_s


def _unload(target: Target, timeout_s: float, begun: Begun) -> Detached:
    """Make the interpreter unload a hook that does not answer, between two bytecodes."""
    answer, stopped_s = deliver(Attempt(target, begun=begun), "unload", timeout_s)
    outcome = _unloaded(target, answer, timeout_s)
    hook = "" if answer is None else hook_words(answer.release, answer.version)
    return replace(outcome, method=PENDING_CALL, stopped_s=stopped_s, hook=hook)


def _unloaded(target: Target, answer: PayloadAnswer | None, timeout_s: float) -> Detached:
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
        time.sleep(_DETACH_POLL_S)


def _left(goodbye: dict[str, object]) -> tuple[str, ...]:
    """What the hook reports that it could not undo, see `wire.GOODBYE`."""
    left = goodbye.get("left")
    if not isinstance(left, dict):
        return ()
    entries = list(left.items())[:_LEFT_LIMIT]
    return tuple(clean(f"{name}: {reason}", 300) for name, reason in entries)


def _call_off(target: Target, timeout_s: float, begun: Begun) -> tuple[bool, bool]:
    """Call off an injection that is not completed, and wait for its end if it has begun.

    Returns:
        Whether there was one, and whether it is still under way. An injection that was called off
        earlier has no directory, but may be under way.
    """
    left = exchange_dir.find(target)
    if left is not None and left.unloads:
        return False, False
    if left is not None:
        begun(target.process, CALLED_OFF, "")
        left.remove()
    is_under_way = cancel_call(target, within_s=timeout_s + BEGUN_WITHIN_S)
    return left is not None or is_under_way, is_under_way


def _call_off_unload(target: Target) -> None:
    """Call off an `unload` that is not needed any more."""
    left = exchange_dir.find(target)
    if left is not None and left.unloads:
        left.remove()
        cancel_call(target)


def _tidy(target: Target, before: Presence) -> tuple[str, ...]:
    """Remove the remains of a hook: its files and unused copies; what stays, in sentences."""
    folder = before.folder
    if folder and not exchange_dir.takes_writes(target, folder):
        return (f"the files of the hook in {clean(folder)}: {frozen_disk.SENTENCE}",)
    if folder:
        discovery.remove_left_files(target.sample(), folder)
    install.remove_unused(target)
    return ()
