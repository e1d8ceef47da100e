"""How processes ended, for jobs that are over and for the rows of those that went."""

from __future__ import annotations

from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.units import seconds_text
from mpwatch.tui.elements.styled_text import Line, Span, Tone, cell, line


def ending_words(process: Process) -> str:
    """How it ended, short: `exit code 1`, `signal 9 (SIGKILL)`; empty while it lives."""
    return "" if process.ended is None else process.ended.words


def ending_tone(process: Process) -> Tone:
    """Good for exit code 0, critical for a signal or another code, plain if unknown."""
    ended = process.ended
    if ended is None or (ended.signal is None and ended.exit_code is None):
        return "dim"
    return "dim" if ended.signal is None and ended.exit_code == 0 else "critical"


def is_over(snapshot: Snapshot) -> bool:
    """Whether nothing of the job lives any more."""
    return bool(snapshot.processes) and not snapshot.living()


def over_lines(snapshot: Snapshot) -> tuple[Line, ...]:
    """How a job that is over ended: the root first, then those that did not end well."""
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
            _what_stays(snapshot),
        )
    ]
    failed = [p for p in snapshot.processes if p is not root and ending_tone(p) == "critical"]
    lines += [
        line("   ", f"{p.label} ({p.pid}): ", (ending_words(p), "critical")) for p in failed[:3]
    ]
    if len(failed) > 3:
        lines.append(cell(f"   and {len(failed) - 3} more; all are in the tree", "dim"))
    return tuple(lines)


def _what_stays(snapshot: Snapshot) -> Span:
    """What is left after the root has ended."""
    living = len(snapshot.living())
    if not living:
        return Span("; this is its last state", "dim")
    return Span(f"; {living} of its processes live{'s' if living == 1 else ''} on", "warning")
