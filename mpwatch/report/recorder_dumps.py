"""The diagnosis of files that torch's flight recorder has left: as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mpwatch.describe.findings import labelled_fields, severity_word
from mpwatch.model.collectives import RankRecord, Recorded
from mpwatch.model.findings import Finding
from mpwatch.model.units import numbers_text
from mpwatch.report.json import SCHEMA, finding_json, utc_text
from mpwatch.report.table import PLAIN, Column, TextStyle, table
from mpwatch.report.text import BULLET, SEVERITY_EMPHASIS, heading, labelled

RANKS_SHOWN = 64
"""Rows of the table of ranks; findings name the others."""
_COLUMNS = (
    Column("RANK", is_number=True),
    Column("HELD", is_number=True),
    Column("UNFINISHED", is_number=True),
    Column("OLDEST UNFINISHED, ELSE NEWEST", is_flexible=True, floor=24),
)


def dumps_text(
    records: Sequence[RankRecord],
    findings: Sequence[Finding],
    problems: Sequence[str],
    *,
    style: TextStyle = PLAIN,
) -> str:
    """The findings in full, a row for each rank, and what could not be read."""
    numbers = numbers_text(record.rank for record in records)
    at = utc_text(max(record.written_wall_s for record in records))[:19].replace("T", " ")
    some = f"rank{'s' if len(records) != 1 else ''} {numbers}"
    lines = style.wrap(f"flight recorder of {some}; newest file of {at} UTC")
    if findings:
        lines += heading("findings", "", style)
        for finding in findings:
            lines += [*_finding(finding, style), ""]
        lines.pop()
    else:
        lines += ["", _nothing(records)]
    lines += heading("ranks", "collectives that each file holds", style)
    lines += table(_COLUMNS, [_row(record) for record in records[:RANKS_SHOWN]], style)
    if len(records) > RANKS_SHOWN:
        lines.append(f"  and {len(records) - RANKS_SHOWN} more")
    if problems:
        lines += heading("could not be read", "", style)
        lines += [line for each in problems for line in style.wrap(each, "  ", "    ")]
    return "\n".join(lines)


def dumps_json(
    records: Sequence[RankRecord], findings: Sequence[Finding], problems: Sequence[str]
) -> dict[str, Any]:
    """The keys of a diagnosis, as far as files of a flight recorder have them, and `ranks`."""
    return {
        "schema": SCHEMA,
        "at": utc_text(max(record.written_wall_s for record in records)),
        "root": None,
        "host": None,
        "findings": [finding_json(each, 0.0) for each in findings],
        "waits": {"chains": [], "edges": []},
        "problems": list(problems),
        "ended": [],
        "last_words": [],
        "together": [],
        "account": None,
        "ranks": [_rank_json(record) for record in records],
    }


def _finding(finding: Finding, style: TextStyle) -> Iterator[str]:
    word = style.paint(severity_word(finding.severity), SEVERITY_EMPHASIS[finding.severity])
    yield f"{word}  {finding.rule}"
    yield from style.wrap(finding.summary, "  ")
    shown = ""
    for label, text in labelled_fields(finding, bullet=BULLET):
        yield from labelled(label if label != shown else "", text, style)
        shown = label


def _nothing(records: Sequence[RankRecord]) -> str:
    if not any(record.entries for record in records):
        return "The files hold no collective."
    if any(_unfinished(record) for record in records):
        if len(records) == 1:
            return (
                "This rank has unfinished collectives. Give the files of the other ranks as well."
            )
        return "Some collectives were unfinished, and no rank is known that they waited for."
    return "All collectives in these files had finished."


def _unfinished(record: RankRecord) -> list[Recorded]:
    """The unfinished calls of a rank, the oldest first."""
    found = [
        call
        for group in record.groups.values()
        for call in (*group.calls, *group.transfers)
        if call.is_unfinished
    ]
    return sorted(found, key=lambda call: call.created_wall_ns or 0)


def _shown(record: RankRecord) -> Recorded | None:
    """The oldest unfinished call of a rank, else its newest."""
    unfinished = _unfinished(record)
    if unfinished:
        return unfinished[0]
    newest = [group.newest for group in record.groups.values() if group.newest is not None]
    return max(newest, key=lambda call: call.created_wall_ns or 0, default=None)


def _row(record: RankRecord) -> list[str]:
    call = _shown(record)
    words = "-" if call is None else call.words
    return [str(record.rank), str(record.entries), str(len(_unfinished(record))), words]


def _rank_json(record: RankRecord) -> dict[str, Any]:
    return {
        "rank": record.rank,
        "source": record.source,
        "written_at": utc_text(record.written_wall_s),
        "entries": record.entries,
        "groups": [
            {
                "name": group.name,
                "description": group.description,
                "ranks": None if group.ranks is None else list(group.ranks),
                "called": group.called,
                "unfinished": [
                    _call_json(call)
                    for call in (*group.calls, *group.transfers)
                    if call.is_unfinished
                ],
            }
            for group in record.groups.values()
        ],
    }


def _call_json(call: Recorded) -> dict[str, Any]:
    return {
        "number": call.number,
        "operation": call.operation,
        "sizes": call.sizes,
        "types": call.types,
        "other_place": call.other_place,
        "stack": [
            {"function": frame.function, "file": frame.file, "line": frame.line}
            for frame in call.stack
        ],
    }
