"""Exit status of ended jobs and processes, as text."""

from __future__ import annotations

from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.units import seconds_text
from mpwatch.tui.elements.styled_text import Line, Span, Tone, cell, line


def ending_words(process: Process) -> str:
    """The exit status, short: `exit code 1`, `signal 9 (SIGKILL)`; empty while it runs."""
    return "" if process.ended is None else process.ended.words


def ending_tone(process: Process) -> Tone:
    """Good for exit code 0, critical for a signal or another code, plain if unknown."""
    ended = process.ended
    if ended is None or (ended.signal is None and ended.exit_code is None):
        return "dim"
    return "dim" if ended.signal is None and ended.exit_code == 0 else "critical"


def is_over(snapshot: Snapshot) -> bool:
    """Whether all processes of the job have ended."""
    return bool(snapshot.processes) and not snapshot.living()


def over_lines(snapshot: Snapshot) -> tuple[Line, ...]:
    """Exit status of an ended job: the root process first, then processes that failed."""
    root = snapshot.get(snapshot.root)
    if root is None or root.ended is None:
        return ()
    ago_s = max(0.0, snapshot.at_s - root.ended.at_s)
    when = "" if ago_s < 1 else f", {seconds_text(ago_s)} ago"
    lines = [
        line(
            (" ENDED ", "title"),
            f"{root.label} ({root.pid}): ",
            (root.ended.words, ending_tone(root)),
            (when, "dim"),
            _remaining(snapshot),
        )
    ]
    failed = [p for p in snapshot.processes if p is not root and ending_tone(p) == "critical"]
    lines += [
        line("   ", f"{p.label} ({p.pid}): ", (ending_words(p), "critical")) for p in failed[:3]
    ]
    if len(failed) > 3:
        lines.append(cell(f"   and {len(failed) - 3} more; all are in the tree", "dim"))
    return tuple(lines)


def _remaining(snapshot: Snapshot) -> Span:
    """The processes that still run after the root process has ended."""
    living = len(snapshot.living())
    if not living:
        return Span("; this is its last state", "dim")
    return Span(f"; {living} of its processes live{'s' if living == 1 else ''} on", "warning")
