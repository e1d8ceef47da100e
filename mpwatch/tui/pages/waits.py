"""Wait chains as a tree: from each stalled thread to the end of its chain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from mpwatch.describe.processes import lasting_text
from mpwatch.describe.waits import edge_words, is_passing
from mpwatch.diagnose.analysis.waits.providers import is_of_this_wait
from mpwatch.model.findings import Severity
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Process
from mpwatch.model.waits import SETTLED_S, Verdict, WaitChain, WaitEdge
from mpwatch.tui.elements.page import MARKS, TONES, Page, SnapshotView
from mpwatch.tui.elements.styled_text import Line, Row, ScreenColumn, Span, Tone, cell, headed, line
from mpwatch.tui.pages.stacks.threads import stack_head, stack_lines

COLUMNS = (
    ScreenColumn("PROCESS", 22, keep=9, most=26, spreads=34),
    ScreenColumn("WAIT", 24, keep=9, grows=True),
    ScreenColumn("FOR", 8, align="right", keep=8),
)
VERDICT_WORDS: Mapping[Verdict, str] = MappingProxyType(
    {
        "cycle": "CYCLE",
        "dead-end": "DEAD END",
        "progress": "moves",
        "ordinary": "ordinary",
        "unknown": "unknown",
    }
)
_TONES: Mapping[Verdict, Tone] = MappingProxyType(
    {
        "cycle": "critical",
        "dead-end": "critical",
        "progress": "good",
        "ordinary": "dim",
        "unknown": "warning",
    }
)


@dataclass(frozen=True, slots=True)
class WaitRow:
    """One line of the tree: a link of a chain, its conclusion, or a single wait."""

    key: tuple[object, ...]
    process: ProcessId | None
    depth: int
    name: str
    words: str
    since_s: float | None = None
    verdict: Verdict | None = None
    """Set on the last line of a chain."""
    edge: WaitEdge | None = None
    chain: WaitChain | None = None
    """Of a line of a chain."""


def items(view: SnapshotView) -> list[WaitRow]:
    """Chains first, worst on top, then waits outside any chain; idle waits are omitted."""
    rows: list[WaitRow] = []
    graph = view.snapshot.waits
    order: list[Verdict] = ["cycle", "dead-end", "unknown", "progress", "ordinary"]
    chains = sorted(graph.chains, key=lambda chain: order.index(chain.verdict))
    chained: set[ProcessId | None] = set()
    for number, chain in enumerate(chains):
        if view.scope is not None and all(k.process != view.scope for k in chain.links):
            continue
        if is_passing(chain, view.snapshot):
            continue
        rows += _chain_rows(chain, number)
        chained |= {link.process for link in chain.links}
    for edge in graph.edges:
        in_scope = view.scope in (None, edge.waiter)
        is_new = edge.since_s is not None and edge.since_s < SETTLED_S
        if in_scope and not edge.is_ordinary and edge.waiter not in chained and not is_new:
            rows.append(_single(edge, view))
    return rows


def _chain_rows(chain: WaitChain, number: int) -> list[WaitRow]:
    rows = []
    for depth, link in enumerate(chain.links):
        key = ("link", link.process, link.tid, link.words, depth, number)
        rows.append(
            WaitRow(key, link.process, depth, link.name, link.words, link.since_s, chain=chain)
        )
    last = chain.links[-1].process if chain.links else None
    end = ("end", number, chain.sentence)
    rows.append(WaitRow(end, last, len(chain.links), "", _conclusion(chain), None, chain.verdict))
    return rows


def _conclusion(chain: WaitChain) -> str:
    return chain.conclusion or "the end of this chain could not be determined"


def _single(edge: WaitEdge, view: SnapshotView) -> WaitRow:
    name = view.name(edge.waiter)
    if edge.tid != edge.waiter.pid:
        name += f" thread {edge.tid}"
    words = edge_words(edge)
    if edge.providers:
        words += f" from {', '.join(view.name(p) for p in edge.providers[:3])}"
    return WaitRow(
        ("edge", edge.waiter, edge.tid), edge.waiter, 0, name, words, edge.since_s, None, edge
    )


def _row(item: WaitRow, view: SnapshotView) -> Row:
    indent = "   " * (item.depth - 1) + " └ " if item.depth else ""
    if item.verdict is not None:
        tone = _TONES[item.verdict]
        return Row(
            item.key,
            (
                line((indent, "dim"), (VERDICT_WORDS[item.verdict], tone)),
                cell(item.words, tone),
                cell(""),
            ),
        )
    severity = view.severity(item.process) if item.process else None
    pid = f" {item.process.pid}" if item.process else ""
    if pid.strip() in item.name.replace("(", " ").replace(")", " ").split():
        pid = ""  # the name contains the pid already
    since = lasting_text(item.since_s, view.snapshot, at_least="≥")
    since = since if item.since_s is not None else ""
    return Row(
        item.key,
        (line((indent, "dim"), (item.name, "title"), (pid, "dim")), cell(item.words), cell(since)),
        mark=MARKS[severity] if severity else Span(" "),
    )


def details(item: WaitRow, view: SnapshotView, width: int) -> tuple[Line, ...]:
    """Facts about the process of this line, and the fix if a finding gives one."""
    found = view.findings_of.get(item.process, []) if item.process else []
    finding = next((each for each in found if each.severity > Severity.INFO), None)
    if finding is not None:
        return (
            *_in_full(item, view, width),
            *headed(f" {finding.rule}  ", TONES[finding.severity], finding.summary, width),
            *headed("   fix  ", "", finding.advice, width),
        )
    process = view.by_id.get(item.process) if item.process else None
    lines = _in_full(item, view, width)
    if item.edge is not None and item.edge.evidence:
        lines.append(line(" evidence ", (item.edge.evidence, "dim")))
    if process is not None:
        lines.append(cell(f" {view.full_name(process.process)}  {process.doing}"))
        lines += _stack_lines(item, process, view, width)
    return tuple(lines)


def _stack_lines(
    item: WaitRow, process: Process, view: SnapshotView, width: int
) -> tuple[Line, ...]:
    """The stack of the thread that waits, unless it was taken before this wait."""
    tid = item.edge.tid if item.edge is not None else process.pid
    thread = next((each for each in process.threads if each.tid == tid), None)
    if thread is None or not thread.stack:
        return ()
    if not is_of_this_wait(thread):
        return (cell("   its last stack was taken before this wait", "dim"),)
    return (
        stack_head(thread, view.snapshot.at_s),
        *stack_lines(thread.shown_stack, width),
    )


def _in_full(item: WaitRow, view: SnapshotView, width: int) -> list[Line]:
    """The line uncut, independent of the width of its columns."""
    if item.verdict is not None:
        head = f" {VERDICT_WORDS[item.verdict]}  "
        return list(headed(head, _TONES[item.verdict], item.words, width))
    since = f"  for {lasting_text(item.since_s, view.snapshot)}" if item.since_s is not None else ""
    lines = list(headed(f" {item.name} ", "title", f"{item.words} {since}", width))
    if item.chain is not None:
        verdict = item.chain.verdict
        head = f"   {VERDICT_WORDS[verdict]}  "
        lines += headed(head, _TONES[verdict], _conclusion(item.chain), width)
    return lines


def _empty(view: SnapshotView) -> tuple[str, ...]:
    if not view.snapshot.living():
        return ("No waits: every process of this job has ended.",)
    ordinary = sum(edge.is_ordinary for edge in view.snapshot.waits.edges)
    idle = (
        f"{ordinary} ordinary waits (idle workers, back-pressure) are omitted. " if ordinary else ""
    )
    return (
        "No overdue waits.",
        f"{idle}A wait appears here once a thread has been stalled for a few seconds.",
    )


PAGE: Page[WaitRow] = Page(
    name="waits",
    title="Waits",
    short="Waits",
    columns=COLUMNS,
    items=items,
    key=lambda item: item.key,
    row=_row,
    text=lambda item, view: f"{item.name} {item.words} {view.full_name(item.process)}",
    empty=_empty,
    details=details,
    details_share=0.4,
    process=lambda item: item.process,
    help=(
        "Why the job is stalled: each wait chain from a stalled thread, one step per line, to the"
        " process or resource at its end.",
        "DEAD END  the wait can never complete; CYCLE  the waits form a closed loop;",
        "moves     the chain ends at a running process; unknown  its end cannot be observed.",
        "Ordinary waits (idle workers, back-pressure) are omitted.",
    ),
)
