"""The whole job in a few lines, for a status within the normal terminal output."""

from __future__ import annotations

from collections.abc import Sequence

from mpwatch.tui.elements.exit_status import is_over, over_lines
from mpwatch.tui.elements.header import Viewing, header, host_line
from mpwatch.tui.elements.page import Order
from mpwatch.tui.elements.snapshot_view import Moment
from mpwatch.tui.elements.styled_text import (
    Column,
    Line,
    Row,
    Span,
    cell,
    cut,
    drawn,
    line,
    place,
    width_of,
)
from mpwatch.tui.pages import findings, tree

MOST_FINDINGS = 4
LEAST_ROWS = 3
MOST_ROWS = 8
"""Processes shown, those with findings first; the rest is counted."""


def status_lines(moment: Moment, viewing: Viewing, width: int, height: int) -> tuple[Line, ...]:
    """Status, findings, the most relevant processes, the host: top to bottom.

    Args:
        moment: What to show.
        viewing: Title, pause, filter.
        width: Cells of a line.
        height: Lines of the terminal; the status uses only part of them.
    """
    top = (header(moment.snapshot, viewing, width), *_finding_lines(moment, width))
    rows = max(LEAST_ROWS, min(MOST_ROWS, height - len(top) - 5))
    bottom = host_line(moment.snapshot, width)
    return (*top, *_processes(moment, rows, width), bottom)


def _finding_lines(moment: Moment, width: int) -> tuple[Line, ...]:
    """The findings, or the exit status of the job, or the line for a healthy job."""
    over = over_lines(moment.snapshot)
    found = findings.briefs(moment.snapshot, MOST_FINDINGS)[:MOST_FINDINGS]
    rows = [findings.brief_row(brief, moment) for brief in found]
    hidden = len(findings.standing(moment.snapshot)) - sum(not b.is_advice for b in found)
    lines = [*over, *(_row_line(findings.BRIEF_COLUMNS, row, width) for row in rows)]
    if hidden > 0:
        lines.append(cell(f"  and {hidden} more findings", "dim"))
    if not lines and not is_over(moment.snapshot):
        lines.append(findings.health(moment))
    return tuple(cut(each, width) for each in lines)


def _processes(moment: Moment, most: int, width: int) -> tuple[Line, ...]:
    """The tree without ended processes, cut to `most` rows; the rest is counted."""
    found = [n for n in tree.nodes(moment, Order()) if not n.process.is_gone]
    if not found:
        return ()
    shown = found if len(found) <= most else found[: most - 1]
    lines = [_heads(tree.COLUMNS, width)]
    lines += [_row_line(tree.COLUMNS, tree.PAGE.row(node, moment), width) for node in shown]
    if len(found) > len(shown):
        lines.append(cell(f"  and {len(found) - len(shown)} more processes", "dim"))
    return tuple(lines)


def _heads(columns: Sequence[Column], width: int) -> Line:
    """The names of the columns."""
    cells = tuple(cell(column.name, "dim") for column in columns)
    return _row_line(columns, Row("", cells), width)


def _row_line(columns: Sequence[Column], row: Row, width: int) -> Line:
    """A row of a table as one line."""
    spans: list[Span] = [row.mark, Span(" ")]
    for number, (index, size) in enumerate(place(columns, width - 2)):
        content = cut(drawn(row.cells[index], size), size)
        blank = Span(" " * (size - width_of(content)))
        spans += [Span(" ")] if number else []
        spans += (*content, blank) if columns[index].align == "left" else (blank, *content)
    return cut(line(*spans), width)
