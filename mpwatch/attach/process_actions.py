"""What a user can do to processes of a job: signals, limits, detaching all hooks.

For the dashboard, `mpwatch detach` and the end of an attach alike.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from mpwatch.attach.outcomes import Detached, still_attached
from mpwatch.collect.process import procfs
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import ProcSample

T = TypeVar("T")


class ActionRefused(Exception):
    """An action was refused; the text is one sentence with the reason."""


def _check_exists(process: ProcessId) -> None:
    """Check that exactly this process exists, which its pid alone does not say.

    Raises:
        ProcessLookupError: It has ended.
    """
    stat = procfs.read_stat("/proc", process.pid)
    if stat is None or stat.process != process:
        raise ProcessLookupError(process.pid)


def _signal_by_pidfd(process: ProcessId, number: int) -> None:
    """Send a signal to exactly this process, even if its pid is reused."""
    descriptor = os.pidfd_open(process.pid)
    try:
        # An open pidfd refers to one process for good, so this check stays valid for the signal.
        _check_exists(process)
        signal.pidfd_send_signal(descriptor, number)
    finally:
        os.close(descriptor)


def _raise_limit(process: ProcessId) -> int:
    """Raise the soft limit of descriptors to the hard limit; returns the hard limit."""
    _check_exists(process)
    _, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def detach_and_log(
    processes: Sequence[ProcSample], report: Callable[[Detached], None] | None = None
) -> tuple[tuple[Detached, ...], str | None]:
    """Detach every hook of these processes, and write that to the log of injections.

    Args:
        processes: With their command lines, for the log.
        report: Called with each outcome at once.

    Returns:
        The outcomes, and why the log is not complete.
    """
    from mpwatch.attach.inject_tree import detach_tree
    from mpwatch.attach.injection_log import InjectionLog

    log = InjectionLog()
    commands = {sample.process: sample.cmdline for sample in processes}

    def note(found: Detached) -> None:
        log.detached(found, commands.get(found.process, ()))
        if report is not None:
            report(found)

    try:
        outcomes = detach_tree(processes, note, begun=log.detaching)
    finally:
        log.close()  # what ctrl-c has interrupted
    return outcomes, log.problem


def detach_hooks(processes: Sequence[ProcSample]) -> str:
    """Detach every hook and log it; returns a sentence with the result."""
    outcomes, problem = detach_and_log(processes)
    stayed = [found for found in outcomes if found.is_attached]
    if stayed:
        reason = stayed[0].reason or stayed[0].state
        return f"{still_attached(stayed, len(outcomes))}: {reason}"
    note = f" The log of detaches is not complete: {problem}." if problem is not None else ""
    return f"The hook was detached from every process.{note}"


@dataclass(frozen=True, slots=True)
class ProcessActions:
    """The system calls behind the actions; tests pass fakes."""

    send: Callable[[ProcessId, int], None] = field(default=_signal_by_pidfd)
    raise_limit: Callable[[ProcessId], int] = field(default=_raise_limit)
    detach: Callable[[Sequence[ProcSample]], str] = field(default=detach_hooks)
    """Detaches the hook from all these processes; returns a sentence with the result."""

    def signal(self, process: ProcessId, number: int) -> str:
        """Send a signal; returns a sentence with the result.

        Raises:
            ActionRefused: The process has ended or belongs to another user.
        """
        self._try(lambda: self.send(process, number), process)
        return f"{signal.Signals(number).name} was sent to {process.pid}."

    def raise_descriptors(self, process: ProcessId) -> str:
        """Raise its soft limit of descriptors to the hard limit; returns a sentence.

        Raises:
            ActionRefused: The process has ended or belongs to another user.
        """
        hard = self._try(lambda: self.raise_limit(process), process)
        return f"{process.pid} may now open {hard} descriptors."

    def _try(self, action: Callable[[], T], process: ProcessId) -> T:
        try:
            return action()
        except ProcessLookupError:
            raise ActionRefused(f"{process.pid} has ended.") from None
        except PermissionError:
            words = f"{process.pid} belongs to another user; this needs its user or root."
            raise ActionRefused(words) from None
        except (OSError, ValueError) as error:
            raise ActionRefused(f"The system refused: {error}.") from None
