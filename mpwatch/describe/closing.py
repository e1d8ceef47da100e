"""What is told of a job once its dashboard is closed: findings, exits, the command for more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mpwatch.describe.findings import FIX, no_findings_lines, severity_word, unresolved
from mpwatch.describe.processes import full_name, program_of
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.units import seconds_text

FINDINGS_SHOWN = 4
EXITS_SHOWN = 6


class ClosingLine(NamedTuple):
    """One line, to be wrapped to the width of the terminal."""

    label: str
    """What it is about: a severity, `fix`, `ended`, `more`; empty for the first line."""
    text: str
    severity: Severity | None = None


def closing_lines(snapshot: Snapshot, recording: str | None = None) -> list[ClosingLine]:
    """The last state of a job in a few lines.

    Args:
        snapshot: The last snapshot of the dashboard.
        recording: The file into which it has recorded.
    """
    lines = [ClosingLine("", _watched(snapshot))]
    lines += _findings(snapshot)
    lines += _exits(snapshot)
    lines += _more(snapshot, recording)
    return lines


def _watched(snapshot: Snapshot) -> str:
    root = snapshot.get(snapshot.root)
    end = "it still runs"
    if root is not None and root.ended is not None:
        end = f"it has ended: {root.ended.words}"
        if snapshot.living():
            end += f", and {len(snapshot.living())} of its processes still run"
    watched = f" for {seconds_text(snapshot.account.watched_s)}" * (snapshot.account.watched_s >= 1)
    return f"{program_of(snapshot)} ({snapshot.root.pid}) was watched{watched}; {end}."


def _findings(snapshot: Snapshot) -> Iterator[ClosingLine]:
    """The present findings with the fix of the first; those that were, if there is none now."""
    found = unresolved(snapshot)
    if not found:
        resolved = [each for each in snapshot.findings if each.resolved_s is not None]
        if not resolved:
            for text in no_findings_lines(snapshot, is_timed=False):
                yield ClosingLine("", text)
        for finding in resolved[:FINDINGS_SHOWN]:
            yield ClosingLine("resolved", finding.summary)
        return
    for number, finding in enumerate(found[:FINDINGS_SHOWN]):
        yield ClosingLine(severity_word(finding.severity), finding.summary, finding.severity)
        if number == 0 and finding.advice:
            yield ClosingLine(FIX, finding.advice)
    if len(found) > FINDINGS_SHOWN:
        yield ClosingLine("", _rest(found[FINDINGS_SHOWN:]))


def _rest(findings: list[Finding]) -> str:
    return f"and {len(findings)} more finding{'s' * (len(findings) != 1)}"


def _exits(snapshot: Snapshot) -> Iterator[ClosingLine]:
    """The processes that did not end with exit code 0, but for the root process, told above."""
    ended = [p for p in snapshot.processes if p.ended is not None and p.process != snapshot.root]
    failed = [p for p in ended if not _is_plain(p)]
    for process in failed[:EXITS_SHOWN]:
        assert process.ended is not None
        ago_s = max(0.0, snapshot.at_s - process.ended.at_s)
        when = f", {seconds_text(ago_s)} before the end of this watch" if ago_s >= 1 else ""
        yield ClosingLine("ended", f"{full_name(process)}: {process.ended.words}{when}")
    rest = len(failed) - EXITS_SHOWN
    if rest > 0:
        yield ClosingLine("ended", f"and {rest} more with a signal, another exit code or unknown")
    plain = len(ended) - len(failed)
    if plain:
        noun = "process" if plain == 1 else "processes"
        yield ClosingLine("ended", f"{plain} {'other ' * bool(failed)}{noun} with exit code 0")


def _is_plain(process: Process) -> bool:
    return process.ended is not None and process.ended.exit_code == 0


def _more(snapshot: Snapshot, recording: str | None) -> Iterator[ClosingLine]:
    """The commands that show more than this."""
    pid = snapshot.root.pid
    if living := snapshot.living():
        left = living[0].pid  # the root process, as long as it runs
        yield ClosingLine("more", f"mpwatch diagnose {left}, mpwatch dump {left}")
    if recording is not None:
        from shlex import quote

        path = quote(recording)
        yield ClosingLine("more", f"mpwatch replay {path}, mpwatch report {path} -o OUT.html")
        return
    if any(_left_events(process) for process in snapshot.processes):
        yield ClosingLine("more", f"mpwatch autopsy {pid} (the last events of its hooks)")
    if not snapshot.living():
        yield ClosingLine("", "Nothing was recorded; --record FILE keeps what a dashboard shows.")


def _left_events(process: Process) -> bool:
    """Whether the file of its hook is left: it had one, and did not exit by itself."""
    ended = process.ended
    return ended is not None and ended.exit_code is None and process.hook.events > 0
