"""The pages of a job on several machines: nodes, ranks, findings, one process. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from mpwatch.describe.findings import CAUSE, EVIDENCE, FIX
from mpwatch.model.findings import Severity
from mpwatch.model.snapshot import Playback
from mpwatch.model.units import bytes_text, seconds_text
from mpwatch.nodes.across.finding import JobFinding
from mpwatch.nodes.across.ranks import PlacedRank
from mpwatch.nodes.head.view import NodeView
from mpwatch.nodes.job_source import JobState
from mpwatch.nodes.report import MOVED_S, node_words
from mpwatch.tui.elements.header import clock
from mpwatch.tui.elements.snapshot_view import MARKS
from mpwatch.tui.elements.styled_text import (
    Line,
    Row,
    ScreenColumn,
    Span,
    StatusPart,
    Tone,
    cell,
    cut,
    fitted,
    headed,
    line,
)

GROUPED_FROM = 9
"""From so many nodes on, those that do the same are one row."""
FINDINGS_SHOWN = 3

NODE_COLUMNS = (
    ScreenColumn("NODE", 16, keep=10, most=28),
    ScreenColumn("STATE", 8, keep=9),
    ScreenColumn("RANKS", 5, align="right", keep=8),
    ScreenColumn("PROC", 4, align="right", keep=5),
    ScreenColumn("CPU", 6, align="right", keep=7),
    ScreenColumn("RESIDENT", 8, align="right", keep=4),
    ScreenColumn("SHM", 4, align="right", keep=3),
    ScreenColumn("FDS", 4, align="right", keep=2),
    ScreenColumn("DOING", 24, keep=9, grows=True),
)
RANK_COLUMNS = (
    ScreenColumn("RANK", 8, keep=10, most=24),
    ScreenColumn("NODE", 12, keep=9, most=24),
    ScreenColumn("STATE", 8, keep=8),
    ScreenColumn("STILL", 7, align="right", keep=7),
    ScreenColumn("CPU", 4, align="right", keep=4),
    ScreenColumn("COLL", 6, align="right", keep=3),
    ScreenColumn("BATCH", 6, align="right", keep=2),
    ScreenColumn("DOING", 24, keep=9, grows=True),
)
NODE_TONES: Mapping[str, Tone] = MappingProxyType(
    {"live": "good", "silent": "warning", "ended": "critical", "failed": "critical"}
)
_BY_WORD = MappingProxyType({severity.word: severity for severity in Severity})


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """One node, or nodes that do the same."""

    nodes: tuple[NodeView, ...]

    @property
    def names(self) -> frozenset[str]:
        """The names of its nodes."""
        return frozenset(view.name for view in self.nodes)

    @property
    def name(self) -> str:
        """The name of the first node; of several, how many more there are."""
        more = len(self.nodes) - 1
        return self.nodes[0].name + (f" and {more} more" if more else "")


def node_groups(state: JobState) -> list[NodeGroup]:
    """The rows of the nodes page: those with findings or problems first."""
    worst = _worst_by_node(state)
    groups: defaultdict[object, list[NodeView]] = defaultdict(list)
    for view in state.nodes:
        alone = len(state.nodes) < GROUPED_FROM
        key: object = view.name if alone else (view.state, worst.get(view.name), _activity(view))
        groups[key].append(view)
    found = [NodeGroup(tuple(views)) for views in groups.values()]
    return sorted(found, key=lambda group: _trouble(group.nodes[0], worst))


def _trouble(view: NodeView, worst: dict[str, Severity]) -> tuple[int, int]:
    """Sort key, smallest first."""
    return (-int(worst.get(view.name, 0)), 0 if view.state in ("failed", "ended", "silent") else 1)


def _worst_by_node(state: JobState) -> dict[str, Severity]:
    """The worst finding about each node, of the node itself or of the job."""
    worst: dict[str, Severity] = {}

    def add(name: str | None, severity: Severity | None) -> None:
        if name is not None and severity is not None:
            worst[name] = max(severity, worst.get(name, severity))

    for finding in state.findings:
        add(finding.node, finding.severity)
    for view in state.nodes:
        for row in view.summary.findings if view.summary is not None else ():
            add(view.name, _BY_WORD.get(row.severity))
    return worst


def node_row(group: NodeGroup, state: JobState) -> Row:
    """A row of the nodes page; numbers of several nodes are added, shares are the largest."""
    first = group.nodes[0]
    severities = _worst_by_node(state)
    severity = max((severities[name] for name in group.names if name in severities), default=None)
    rows = [view.summary.node for view in group.nodes if view.summary is not None]
    ranks = sum(
        row.rank is not None and not row.is_ended
        for view in group.nodes
        if view.summary is not None
        for row in view.summary.ranks
    )
    cpu = [row.cpu_percent for row in rows if row.cpu_percent is not None]
    rss = [row.rss_bytes for row in rows if row.rss_bytes]
    return Row(
        first.name,
        (
            cell(group.name, "title"),
            cell(first.state, NODE_TONES.get(first.state, "dim")),
            cell(str(ranks) if rows else "-"),
            cell(str(sum(row.processes for row in rows)) if rows else "-"),
            cell(f"{sum(cpu)}%" if cpu else "-"),
            cell(bytes_text(sum(rss)) if rss else "-"),
            cell(_percent(row.shm_percent for row in rows)),
            cell(_percent(row.fds_percent for row in rows)),
            _node_doing(first),
        ),
        tone="" if first.state == "live" else "dim",
        mark=MARKS[severity] if severity else Span(" "),
    )


def _percent(shares: Iterable[int | None]) -> str:
    """The largest share."""
    known = [share for share in shares if share is not None]
    return f"{max(known)}%" if known else "-"


def _node_doing(view: NodeView) -> Line:
    if view.problem:
        return cell(view.problem, NODE_TONES.get(view.state, ""))
    if view.state in ("waiting", "starting"):
        return cell("its agent is being started", "dim")
    return cell(_activity(view))


def _activity(view: NodeView) -> str:
    """What the ranks of a node do, the most common first: `7 in all_reduce, 1 in save.py:9`."""
    rows = view.summary.ranks if view.summary is not None else ()
    doing = Counter(
        f"in {row.place}"
        if row.place
        else "ended"
        if row.is_ended
        else f"at {row.line}"
        if row.line
        else row.state
        for row in rows
    )
    if not doing:
        return node_words(view)
    return ", ".join(f"{count} {words}" for words, count in doing.most_common(3))


def ranks_of(state: JobState, names: frozenset[str] | None) -> list[PlacedRank]:
    """The rows of the ranks page: those that findings name first, then by number.

    Args:
        state: The job.
        names: Only ranks of these nodes; `None` for all.
    """
    named = {(finding.node, finding.pid) for finding in state.findings}
    found = [
        PlacedRank(view, row)
        for view in state.nodes
        if view.summary is not None and (names is None or view.name in names)
        for row in view.summary.ranks
    ]

    def order(rank: PlacedRank) -> tuple[bool, bool, bool, int]:
        row = rank.row
        is_named = (rank.view.name, row.pid) in named
        return (not is_named, not row.has_failed, row.rank is None, row.rank or 0)

    return sorted(found, key=order)


def rank_key(rank: PlacedRank) -> tuple[str, int]:
    """Identifies a rank: the node and the pid."""
    return (rank.view.name, rank.row.pid)


def rank_row(rank: PlacedRank, state: JobState) -> Row:
    """A row of the ranks page."""
    row = rank.row
    named = [each for each in state.findings if (each.node, each.pid) == rank_key(rank)]
    severities = [each.severity for each in named]
    severities += [_BY_WORD[row.severity]] if row.severity in _BY_WORD else []
    still_s = rank.quiet_s
    return Row(
        rank_key(rank),
        (
            cell(rank.name, "title"),
            cell(rank.view.name),
            cell("ended" if row.is_ended else row.state, "critical" if row.has_failed else ""),
            cell(seconds_text(still_s) if still_s >= MOVED_S else "-"),
            cell("-" if row.cpu_percent is None or row.is_ended else f"{row.cpu_percent}%"),
            cell("-" if row.number is None else str(row.number)),
            cell("-" if row.batch is None else str(row.batch)),
            cell(row.ended if row.is_ended else row.doing or "-"),
        ),
        tone="dim" if row.is_ended or rank.view.state != "live" else "",
        mark=MARKS[max(severities)] if severities else Span(" "),
    )


# --- lines around the tables ---------------------------------------------------------------------


def top_line(state: JobState, width: int) -> Line:
    """The job, its nodes by state, its ranks, its findings."""
    counts = Counter(view.state for view in state.nodes)
    states = ", ".join(f"{count} {word}" for word, count in counts.most_common())
    count = len(state.nodes)
    ranks = sum(
        row.rank is not None and not row.is_ended
        for view in state.nodes
        if view.summary is not None
        for row in view.summary.ranks
    )
    left = [
        StatusPart(line((" mpwatch ", "title"), state.spec), 10),
        StatusPart(cell(f"{count} node{'s' if count != 1 else ''}: {states}"), 8),
        StatusPart(cell(f"{ranks} ranks"), 6),
    ]
    if state.playback is not None:
        left.append(StatusPart(cell(_playback_words(state.playback), "title"), 9))
    found = len(state.findings)
    words = f"{found} finding{'s' if found != 1 else ''}"
    right = [StatusPart(cell(words), 5)] if found else []
    return fitted(left, right, width)


def _playback_words(playback: Playback) -> str:
    """`replay 0:42 of 3:10 x1`."""
    speed = "paused" if playback.is_paused else f"x{playback.speed:g}"
    return f"replay {clock(playback.at_s)} of {clock(playback.length_s)} {speed}"


def finding_lines(state: JobState, width: int) -> tuple[Line, ...]:
    """The most urgent findings of the job, each with its whole summary."""
    lines: list[Line] = []
    if state.problem:
        lines += headed(" ", "critical", state.problem, width)
    for each in state.findings[:FINDINGS_SHOWN]:
        mark = MARKS[each.severity]
        lines += headed(f" {mark.text} ", mark.tone, each.summary, width)
    more = len(state.findings) - FINDINGS_SHOWN
    if more > 0:
        lines.append(cell(f"   and {more} more: f", "dim"))
    return tuple(lines)


def all_findings(state: JobState, width: int) -> tuple[Line, ...]:
    """All findings in full: of the job, then of each node in one line each."""
    lines: list[Line] = []
    for finding in state.findings:
        lines += _in_full(finding, width)
    if not state.findings:
        lines += [cell("No findings about the job as a whole."), ()]
    for view in state.nodes:
        for row in view.summary.findings if view.summary is not None else ():
            head = f"{view.name}  {row.label}  " if row.label else f"{view.name}  "
            lines += headed(head, "title", f"{row.severity}: {row.summary}", width)
    return tuple(lines)


def _in_full(finding: JobFinding, width: int) -> list[Line]:
    lines: list[Line] = [*headed("", "title", finding.summary, width)]
    fields = [*((EVIDENCE, each) for each in finding.evidence)]
    fields += [(CAUSE, finding.cause), (FIX, finding.advice)]
    for label, words in fields:
        lines += headed(f"  {label:<9}", "dim", words, width)
    return [*lines, ()]


def node_details(group: NodeGroup | None, width: int) -> tuple[Line, ...]:
    """Two lines about the node under the cursor."""
    if group is None:
        return ()
    view = group.nodes[0]
    words = [node_words(view)] if view.summary is not None else []
    if view.version:
        words.append(f"mpwatch {view.version}")
    if view.clock_offset_s is not None and view.clock_error_s is not None:
        words.append(f"clock {view.clock_offset_s:+.3f} s (± {view.clock_error_s:.3f})")
    stacks = view.summary.node.stacks if view.summary is not None else ()
    second = view.problem or "; ".join(stacks)
    return (
        cut(line((f" {view.host or view.name}  ", "title"), ", ".join(words)), width),
        cut(cell(f"   {second}", "dim"), width),
    )


def rank_details(rank: PlacedRank | None, width: int) -> tuple[Line, ...]:
    """Two lines about the rank under the cursor."""
    if rank is None:
        return ()
    row = rank.row
    where = f"pid {row.pid} on {rank.view.name}"
    job = f"   job {row.job}" if row.job else ""
    record = ""
    if row.number is not None:
        state = "unfinished" if row.is_unfinished else "finished"
        record = f"   torch has recorded: {row.operation} #{row.number}, {state}"
    return (
        cut(line((f" {rank.name}  ", "title"), f"{where}{job}{record}"), width),
        cut(cell(f"   {row.doing}"), width),
    )


def process_lines(document: dict[str, Any], node: str, width: int) -> tuple[Line, ...]:
    """One process in full: its command, its findings, its threads with their stacks."""
    process = document["process"]
    lines: list[Line] = [
        line((f"{process['label']} ({process['pid']}) on {node}", "title")),
        *headed("  command  ", "dim", " ".join(process["cmdline"]), width),
        *headed("  doing    ", "dim", process["doing"] or "-", width),
        *headed("  memory   ", "dim", bytes_text(process["rss_bytes"]) + " resident", width),
        (),
    ]
    for finding in document["findings"]:
        if not finding["resolved"]:
            lines += headed(f"{finding['severity']}  ", "warning", finding["summary"], width)
            lines += headed(f"  {FIX:<9}", "dim", finding["advice"], width)
            lines.append(())
    for thread in process["threads"]:
        still = f", no cpu for {seconds_text(thread['still_s'])}" if thread["still_s"] else ""
        lines.append(line((f"thread {thread['tid']} {thread['name']}", "title"), still))
        lines += _frames(thread["stack"], width)
    return tuple(lines)


def _frames(stack: Sequence[dict[str, Any]], width: int) -> list[Line]:
    if not stack:
        return [cell("  no stack was taken", "dim")]
    return [
        cut(line(f"  {frame['function']}", (f"  {frame['file']}:{frame['line']}", "dim")), width)
        for frame in stack
    ]
