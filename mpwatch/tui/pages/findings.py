"""Findings: the short list on top of the overview, the page, and one finding in full."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from mpwatch.describe.findings import (
    FIX,
    FORECAST,
    labelled_fields,
    no_findings_lines,
    severity_word,
    unresolved,
)
from mpwatch.describe.processes import can_have_hook
from mpwatch.diagnose.analysis.process_queries import counted
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Snapshot
from mpwatch.model.units import seconds_text
from mpwatch.tui.elements.page import MARKS, TONES, Page, SnapshotView, age_text, ago_text
from mpwatch.tui.elements.styled_text import (
    Line,
    Row,
    ScreenColumn,
    Span,
    cell,
    line,
    name_cell,
    text_of,
    wrapped,
)

FINDING_LINE_COLUMNS = (
    ScreenColumn("SEVERITY", 8, keep=8),
    ScreenColumn("WHAT IS WRONG", 40, grows=True, keep=9),
)
COLUMNS = (
    ScreenColumn("SEVERITY", 8, keep=8),
    ScreenColumn("RULE", 28, keep=5),
    ScreenColumn("PROCESS", 16, keep=6, spreads=30),
    ScreenColumn("FORECAST", 8, align="right", keep=4),
    ScreenColumn("SINCE", 8, align="right", keep=3),
    ScreenColumn("WHAT IS WRONG", 34, grows=True, keep=9),
)

FIRST_LINES = 4
"""Enough for most summaries on a screen of 80 columns."""
JUDGED_AFTER_S = 30.0
"""Most findings are known by then: `diagnose` watches for 5 to 35 s."""


@dataclass(frozen=True, slots=True)
class FindingLine:
    """One line of the list on the overview: a summary, its rest, or the fix below it."""

    finding: Finding
    is_advice: bool = False
    text: str = ""
    """The words of this line."""
    number: int = 0
    """Above 0 for the rest of a summary or fix that is longer than a line."""

    @property
    def key(self) -> Hashable:
        """Identifies the finding and the line."""
        return (self.finding.key, self.is_advice, self.number)


def finding_lines(snapshot: Snapshot, height: int, width: int) -> list[FindingLine]:
    """The list on the overview: every unresolved finding.

    The first one is readable in full, up to `FIRST_LINES`, however little room there is; its fix,
    and the fixes of other critical ones, are there if there is room.

    Args:
        snapshot: The findings to list.
        height: Visible lines; the list may be longer, it scrolls.
        width: Cells of the page.
    """
    found = unresolved(snapshot)
    room = height - len(found)
    lines = []
    for place, finding in enumerate(found):
        parts = _parts(finding, width, is_first=place == 0)
        if place == 0:
            parts = _at_most(parts, max(FIRST_LINES, room + 1))
        elif len(parts) - 1 > room:
            parts = [finding.summary]
        room -= len(parts) - 1
        lines += [FindingLine(finding, text=text, number=n) for n, text in enumerate(parts)]
        if room > 0 and (place == 0 or finding.severity is Severity.CRITICAL):
            fixes = _fix_parts(finding, width) if place == 0 else [finding.advice]
            fixes = _at_most(fixes, room)
            room -= len(fixes)
            lines += [
                FindingLine(finding, is_advice=True, text=text, number=n)
                for n, text in enumerate(fixes)
            ]
    return lines


def _at_most(parts: list[str], count: int) -> list[str]:
    """The first lines of a summary; the last one has all the rest, and is cut when drawn."""
    return parts if len(parts) <= count else [*parts[: count - 1], " ".join(parts[count - 1 :])]


def lines_of_first(lines: Sequence[FindingLine]) -> int:
    """How many lines of the list are the summary of its first finding."""
    first = lines[0].finding if lines else None
    return sum(each.finding is first and not each.is_advice for each in lines)


_EFFECT = "  └ "
_FIX_HEAD = f"{FIX}  "
_BESIDE = 12
"""Cells of a line on the overview beside the words: mark, severity, gaps, scrollbar."""


def _parts(finding: Finding, width: int, *, is_first: bool) -> list[str]:
    """A summary in lines that fit; further lines only of the first, of warnings and of worse."""
    if finding.severity < Severity.WARNING and not is_first:
        return [finding.summary]
    inner = width - _BESIDE - (len(_EFFECT) if finding.effect_of else 0)
    return [text_of(each) for each in wrapped(finding.summary, max(20, inner))]


def _fix_parts(finding: Finding, width: int) -> list[str]:
    """A fix in lines that fit."""
    inner = width - _BESIDE - len(_FIX_HEAD) - (len(_EFFECT) if finding.effect_of else 0)
    return [text_of(each) for each in wrapped(finding.advice, max(20, inner))]


def finding_line_row(finding_line: FindingLine, view: SnapshotView) -> Row:
    """One line of the list on the overview."""
    finding = finding_line.finding
    indent = _EFFECT if finding.effect_of else ""
    if finding_line.is_advice and finding_line.number:
        words = line(" " * len(indent + _FIX_HEAD), finding_line.text)
        return Row(finding_line.key, (cell(""), words))
    if finding_line.is_advice:
        words = line(indent, (_FIX_HEAD, "dim"), finding_line.text)
        return Row(finding_line.key, (cell(""), words))
    if finding_line.number:
        return Row(finding_line.key, (cell(""), line(" " * len(indent), finding_line.text)))
    severity = cell(severity_word(finding.severity), TONES[finding.severity])
    return Row(finding_line.key, (severity, line(indent, finding_line.text)))


def health(view: SnapshotView) -> Line:
    """The line shown without findings: healthy, unknown or too early, and how much was observed.

    Before `JUDGED_AFTER_S` it does not say healthy: a job that hangs has no finding yet either.
    """
    living = view.snapshot.living()
    hidden = [p for p in living if p.sample.exe is None and p.sample.problems]
    if hidden:
        why = "; ".join(hidden[0].sample.problems)
        few = f"   {len(hidden)} of {len(living)} processes are not readable   {why}"
        return line((" unknown ", "warning"), "nothing wrong found", (few, "dim"))
    able = [p for p in living if can_have_hook(p)]
    ready = sum(p.hook.state == "ready" for p in able)
    hooks = f"hook ready in {ready} of {len(able)}" if ready else "no hook ready"
    seen = f"{counted(len(living), 'process', 'processes')}, {hooks}"
    watched_s = view.snapshot.account.watched_s
    if watched_s < JUDGED_AFTER_S:
        so_far = f"   watched for {watched_s:.0f} s, {seen}"
        return line((" watching ", "accent"), "nothing wrong found yet", (so_far, "dim"))
    return line((" healthy ", "good"), "nothing wrong found", (f"   {seen}", "dim"))


def _row(finding: Finding, view: SnapshotView) -> Row:
    resolved = finding.resolved_s is not None
    since = view.age_s(finding.first_seen_s)
    word = "resolved" if resolved else severity_word(finding.severity)
    return Row(
        finding.key,
        (
            cell(word, TONES[finding.severity]),
            cell(finding.rule),
            name_cell(view.name(finding.process) if finding.process else "job"),
            cell(seconds_text(finding.eta_s)),
            cell(age_text(since)),
            line(_EFFECT if finding.effect_of else "", finding.summary),
        ),
        tone="dim" if resolved else "",
        mark=Span(" ") if resolved else MARKS[finding.severity],
    )


def in_short(finding: Finding, view: SnapshotView, width: int) -> tuple[Line, ...]:
    """A whole finding with its fix first, which is visible however long the evidence is."""
    fields = labelled_fields(finding, bullet="- ")
    return _text_of(finding, sorted(fields, key=lambda field: field[0] != FIX), view, width)


def in_full(finding: Finding, view: SnapshotView, width: int) -> tuple[Line, ...]:
    """A whole finding: evidence, cause, fix."""
    return _text_of(finding, labelled_fields(finding, bullet="- "), view, width)


def _text_of(
    finding: Finding, fields: Sequence[tuple[str, str]], view: SnapshotView, width: int
) -> tuple[Line, ...]:
    inner = max(20, width - 12)
    summary = wrapped(finding.summary, max(20, width - 1), "title")
    lines: list[Line] = [line(" ", *content) for content in summary]
    lines.append(
        line(" ", (severity_word(finding.severity), TONES[finding.severity]), _about(finding, view))
    )
    shown = ""
    for label, text in fields:
        indent = "  " if text.startswith("- ") else ""
        for number, content in enumerate(wrapped(text, inner, indent=indent)):
            head = label if label != shown and number == 0 else ""
            lines.append(line((f" {head:<10} ", "dim"), *content))
        shown = label
    return tuple(lines)


def _about(finding: Finding, view: SnapshotView) -> str:
    words = f"  {finding.rule}"
    if finding.process:
        words += f"  {view.full_name(finding.process)}"
    if finding.tid and finding.process and finding.tid != finding.process.pid:
        words += f"  thread {finding.tid}"
    if finding.eta_s is not None:
        words += f"  {FORECAST} {seconds_text(finding.eta_s)}"
    if finding.resolved_s is not None:
        words += f"  resolved {ago_text(view.age_s(finding.resolved_s))}"
    return words


def _items(view: SnapshotView) -> list[Finding]:
    found = list(view.snapshot.findings)
    if view.scope is None:
        return found
    return [finding for finding in found if finding.process == view.scope]


def _empty(view: SnapshotView) -> tuple[str, ...]:
    lines = [*no_findings_lines(view.snapshot, is_timed=False)]
    if not any(p.hook.state == "ready" for p in view.snapshot.living()):
        lines.append(
            "Without the hook, leaks inside a process and slow workers cannot be distinguished;"
        )
        lines.append(f"{view.attach_advice}, or call mpwatch.instrument() in the program.")
    return tuple(lines)


def _process(finding: Finding) -> ProcessId | None:
    return finding.process


PAGE: Page[Finding] = Page(
    name="findings",
    title="Findings",
    short="Find",
    columns=COLUMNS,
    items=_items,
    key=lambda finding: finding.key,
    row=_row,
    text=lambda finding, view: (
        f"{finding.rule} {severity_word(finding.severity)} {finding.summary} "
        f"{view.name(finding.process)}"
    ),
    empty=_empty,
    details=in_short,
    opens_at_top=True,
    details_share=0.55,
    process=_process,
    sorts={
        "SEVERITY": lambda finding: float(finding.severity),
        "RULE": lambda finding: finding.rule,
        "FORECAST": lambda finding: finding.eta_s,
        "SINCE": lambda finding: finding.first_seen_s,
    },
    help=(
        "Present and predicted problems, worst first; effects are listed below their cause.",
        "FORECAST is the time until the failure, SINCE the age of the finding.",
        "Below the list: the evidence, the cause and the fix.",
        "A finding that no longer applies stays in the list as resolved.",
        "enter opens the process of the finding.",
    ),
)
