"""Actions on a process: signals, limits, files. The caller has asked for confirmation.

Nothing here is called while the dashboard is read-only. A pid may have been reused since it was
read, so each action first verifies the identity of the process.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import ProcSample
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.tui.elements.styled_text import text_of
from mpwatch.tui.pages.threads import frame_words, stack_head

T = TypeVar("T")


class NotDone(Exception):
    """An action was refused; the text is one sentence with the reason."""


def _start_ticks(pid: int) -> int | None:
    """Field 22 of `/proc/PID/stat`, or `None` once the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            content = stat.read()
    except OSError:
        return None
    return int(content[content.rindex(b")") + 2 :].split()[19])


def _signal_by_pidfd(process: ProcessId, number: int) -> None:
    """Send a signal to exactly this process, even if its pid is reused."""
    descriptor = os.pidfd_open(process.pid)
    try:
        # An open pidfd refers to one process for good, so this check stays valid for the signal.
        if _start_ticks(process.pid) != process.start_ticks:
            raise ProcessLookupError
        signal.pidfd_send_signal(descriptor, number)
    finally:
        os.close(descriptor)


def _raise_limit(process: ProcessId) -> int:
    """Raise the soft limit of descriptors to the hard limit; returns the hard limit."""
    if _start_ticks(process.pid) != process.start_ticks:
        raise ProcessLookupError
    _, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def _detach_hooks(processes: Sequence[ProcSample]) -> str:
    """Detach every hook and log it; returns a sentence with the result."""
    from mpwatch.attach.inject_tree import detach_tree
    from mpwatch.attach.injection_log import InjectionLog

    log = InjectionLog()
    commands = {sample.process: sample.cmdline for sample in processes}
    outcomes = detach_tree(
        processes, lambda found: log.detached(found, commands.get(found.process, ()))
    )
    stayed = [found for found in outcomes if found.state not in ("absent", "pending", "gone")]
    if stayed:
        reason = stayed[0].reason or stayed[0].state
        return f"The hook is still attached in {len(stayed)} of {len(outcomes)} processes: {reason}"
    return "The hook was detached from every process."


@dataclass(frozen=True, slots=True)
class Deeds:
    """The system calls behind the actions; tests pass fakes."""

    send: Callable[[ProcessId, int], None] = field(default=_signal_by_pidfd)
    raise_limit: Callable[[ProcessId], int] = field(default=_raise_limit)
    detach: Callable[[Sequence[ProcSample]], str] = field(default=_detach_hooks)
    """Detaches the hook from all these processes; returns a sentence with the result."""

    def signal(self, process: ProcessId, number: int) -> str:
        """Send a signal; returns a sentence with the result.

        Raises:
            NotDone: The process has ended or belongs to another user.
        """
        self._try(lambda: self.send(process, number), process)
        return f"{signal.Signals(number).name} was sent to {process.pid}."

    def raise_descriptors(self, process: ProcessId) -> str:
        """Raise its soft limit of descriptors to the hard limit; returns a sentence.

        Raises:
            NotDone: The process has ended or belongs to another user.
        """
        hard = self._try(lambda: self.raise_limit(process), process)
        return f"{process.pid} may now open {hard} descriptors."

    def _try(self, deed: Callable[[], T], process: ProcessId) -> T:
        try:
            return deed()
        except ProcessLookupError:
            raise NotDone(f"{process.pid} has ended.") from None
        except PermissionError:
            words = f"{process.pid} belongs to another user; this needs its user or root."
            raise NotDone(words) from None
        except (OSError, ValueError) as error:
            raise NotDone(f"The system refused: {error}.") from None


def stacks_text(snapshot: Snapshot) -> str:
    """All stacks of a snapshot as text for a file."""
    return "\n".join(part for p in snapshot.living() for part in _process_text(p, snapshot.at_s))


def _process_text(process: Process, at_s: float) -> list[str]:
    lines = [f"{process.pid} {process.label}: {process.doing}"]
    for thread in process.threads:
        lines.append(f"  {text_of(stack_head(thread, at_s)).strip()}")
        for frame in thread.stack:
            lines.append(f"    {frame_words(frame)}  ({frame.file})")
            lines += [f"        {name} = {value}" for name, value in frame.locals]
    return [*lines, ""]


def write_new(path: str, content: str) -> str:
    """Create a file, readable by its user only; returns its path.

    Raises:
        NotDone: It exists, or cannot be written.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            out.write(content)
    except OSError as error:
        raise NotDone(f"{path} cannot be written: {error.strerror}.") from None
    return path
