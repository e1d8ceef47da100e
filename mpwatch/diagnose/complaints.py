"""What the hook heard: exceptions and warnings of the job itself, matched to failures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeGuard

from mpwatch.diagnose.stack_shapes import frame_words, is_library
from mpwatch.diagnose.tree import called, counted
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import LogEntry, Snapshot

OWN_KINDS = frozenset(("born", "ended", "orphaned", "finding", "hook", "hook-problem", "ring-lost"))
"""Entries that the observer wrote, or the hook about itself."""
EVIDENCE_LIMIT = 300


@dataclass(frozen=True, slots=True)
class Said:
    """How one kind of complaint is recognised: all of these texts occur in one entry."""

    texts: tuple[str, ...]
    kind: str | None = None
    """Kind of the note; any if `None`."""


def said(*texts: str, kind: str | None = None) -> Said:
    """A complaint by the texts that all occur in it."""
    return Said(texts, kind)


def heard(
    snapshot: Snapshot, *complaints: Said, not_of: frozenset[str] = frozenset()
) -> Iterator[LogEntry]:
    """The log entries that match any of the complaints, the first of each process only.

    Args:
        snapshot: Where to look.
        complaints: What to look for.
        not_of: Kinds of notes that mean something else though the words are the same.
    """
    seen: set[ProcessId | None] = set()
    for entry in snapshot.log:
        if entry.kind in OWN_KINDS or entry.kind in not_of or entry.process in seen:
            continue
        if any(_matches(entry, complaint) for complaint in complaints):
            seen.add(entry.process)
            yield entry


def told(
    snapshot: Snapshot,
    rule: str,
    complaints: tuple[Said, ...],
    *,
    summary: str,
    cause: str,
    advice: str,
    severity: Severity = Severity.CRITICAL,
) -> Iterator[Finding]:
    """A finding if any process complained in one of these ways: about the first, with the others.

    Args:
        snapshot: Where to look.
        rule: Id of the failure.
        complaints: How it sounds.
        summary: What happened, to follow the name of the process.
        cause: Why.
        advice: What to do, with its trade-off.
        severity: How bad it is.
    """
    entries = list(heard(snapshot, *complaints))
    if not entries:
        return
    first = entries[0]
    process = snapshot.get(first.process)
    who = called(process) if process is not None else "a process of the job"
    others = counted(len(entries) - 1, "more process", "more processes")
    more = (f"{others} said the same",) if len(entries) > 1 else ()
    yield Finding(
        rule=rule,
        severity=severity,
        process=first.process,
        summary=f"{who} {summary}",
        evidence=(*evidence_of(first), *more),
        cause=cause,
        advice=advice,
    )


def evidence_of(entry: LogEntry) -> tuple[str, ...]:
    """An entry as evidence: its words, and where it happened if they do not say so."""
    words = [entry.words[:EVIDENCE_LIMIT]] if entry.words else []
    for name in ("where", "site", "path", "detail"):
        value = entry.details.get(name)
        if isinstance(value, str) and value and value not in entry.words:
            words.append(f"{name}: {value[:EVIDENCE_LIMIT]}")
    place = place_of(entry.details)
    if place is not None:
        words.append(f"at {place}")
    return tuple(words) or (f"a note of kind {entry.kind}",)


def place_of(details: Mapping[str, object]) -> str | None:
    """The line of code a note is about: its own, or the user's innermost frame."""
    file, line, function = (details.get(name) for name in ("file", "line", "function"))
    if isinstance(file, str) and isinstance(line, int):
        return frame_words(Frame(str(function or ""), file, line)).strip()
    frames = details.get("frames")
    made = [f for each in frames if (f := _frame(each))] if _is_list(frames) else []
    own = next((frame for frame in made if not is_library(frame)), None)
    return None if own is None else frame_words(own)


def _is_list(value: object) -> TypeGuard[list[object] | tuple[object, ...]]:
    """Whether a value out of JSON is a list."""
    return isinstance(value, (list, tuple))


def _frame(value: object) -> Frame | None:
    """A frame as the hook writes it, `[function, file, line]`."""
    if not _is_list(value) or len(value) != 3:
        return None
    function, file, line = value
    if isinstance(function, str) and isinstance(file, str) and isinstance(line, int):
        return Frame(function, file, line)
    return None


def number_of(details: Mapping[str, object], name: str) -> float | None:
    """A number out of a note or gauge; `None` if it is missing or something else."""
    value = details.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value


def _matches(entry: LogEntry, complaint: Said) -> bool:
    """Whether all texts occur in an entry's words or details."""
    if complaint.kind is not None and entry.kind != complaint.kind:
        return False
    if all(text in entry.words for text in complaint.texts):
        return True
    whole = "\n".join((entry.words, *_strings(entry.details)))
    return all(text in whole for text in complaint.texts)


def _strings(value: object, depth: int = 0) -> Iterator[str]:
    """Every text inside a value as it came from JSON, four levels deep."""
    if isinstance(value, str):
        yield value
    elif depth < 4 and isinstance(value, Mapping):
        for each in value.values():
            yield from _strings(each, depth + 1)
    elif depth < 4 and isinstance(value, (list, tuple)):
        for each in value:
            yield from _strings(each, depth + 1)
