"""The pages of a job on several machines: nodes, ranks, findings. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from mpwatch.describe.findings import CAUSE, EVIDENCE, FIX
from mpwatch.describe.processes import names_text
from mpwatch.describe.progress import MENTIONED_S
from mpwatch.diagnose.analysis.distributed.habits import most_s
from mpwatch.diagnose.analysis.idle_time import STALLED_S
from mpwatch.model.collectives import HABIT
from mpwatch.model.findings import JobFinding, Severity
from mpwatch.model.snapshot import Playback
from mpwatch.model.units import bytes_text, seconds_text
from mpwatch.nodes.across.judge import STANDSTILLS
from mpwatch.nodes.across.ranks import PlacedRank
from mpwatch.nodes.head.node import NodeView
from mpwatch.nodes.job_source import JobState
from mpwatch.nodes.report import clock_words, finding_words, node_words, own_findings
from mpwatch.nodes.wire.summary import RankRow
from mpwatch.tui.elements.header import clock
from mpwatch.tui.elements.page import MARKS
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

FINDINGS_SHOWN = 3

NODE_COLUMNS = (
    ScreenColumn("NODE", 16, keep=10, most=28),
    ScreenColumn("STATE", 8, keep=9),
    ScreenColumn("RANKS", 5, align="right", keep=8),
    ScreenColumn("PROC", 4, align="right", keep=5),
    ScreenColumn("CPU", 6, align="right", keep=7),
    ScreenColumn("RESIDENT", 8, align="right", keep=3),
    ScreenColumn("MEM", 4, align="right", keep=6),
    ScreenColumn("SHM", 4, align="right", keep=4),
    ScreenColumn("FDS", 4, align="right", keep=2),
    ScreenColumn("MAPS", 4, align="right", keep=1),
    ScreenColumn("DOING", 24, keep=9, grows=True),
)
RANK_COLUMNS = (
    ScreenColumn("RANK", 8, keep=10, most=24),
    ScreenColumn("NODE", 12, keep=9, most=24),
    ScreenColumn("STATE", 8, keep=8),
    ScreenColumn("STILL", 7, align="right", keep=7),
    ScreenColumn("WAITS", 5, align="right", keep=5),
    ScreenColumn("CPU", 4, align="right", keep=4),
    ScreenColumn("COLL", 6, align="right", keep=3),
    ScreenColumn("BATCH", 6, align="right", keep=2),
    ScreenColumn("DOING", 24, keep=9, grows=True),
)
FINDING_COLUMNS = (
    ScreenColumn("NODE", 10, keep=10, most=14),
    ScreenColumn("FINDING", 24, keep=9, grows=True),
)
NODE_TONES: Mapping[str, Tone] = MappingProxyType(
    {"live": "good", "silent": "warning", "ended": "critical", "failed": "critical"}
)
_BY_WORD = MappingProxyType({severity.word: severity for severity in Severity})


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """One node, or nodes that do the same."""

    nodes: tuple[NodeView, ...]
    doing: str = ""
    """What each of several nodes does."""
    severity: Severity | None = None
    """The worst finding about one of them, of the node itself or of the job."""

    @property
    def names(self) -> frozenset[str]:
        """The names of its nodes."""
        return frozenset(view.name for view in self.nodes)

    @property
    def name(self) -> str:
        """The name of the first node; of several, how many more there are: `node-0 +39`."""
        more = len(self.nodes) - 1
        return self.nodes[0].name + (f" +{more}" if more else "")


def has_ranks(group: NodeGroup) -> bool:
    """Whether there are ranks to choose from."""
    return any(view.summary is not None and view.summary.ranks for view in group.nodes)


def only_job(group: NodeGroup | None) -> int | None:
    """A process of the job of a single node; `None` of several nodes, of several jobs or none."""
    if group is None or len(group.nodes) != 1 or group.nodes[0].summary is None:
        return None
    ranks = group.nodes[0].summary.ranks
    return ranks[0].pid if ranks and len({row.root for row in ranks}) == 1 else None


def why_not_opened(group: NodeGroup) -> str:
    """Why there is nothing to open, in one sentence."""
    view = group.nodes[0]
    if view.problem:
        return f"{view.name}: {view.problem}"
    if view.summary is None or view.summary.node.state == "starting":
        return f"{view.name} is still being read."
    return f"{view.name} runs no torch job."


class Silence(NamedTuple):
    """Why a node whose job is open sends nothing: in few words, and in a sentence."""

    words: str = ""
    sentence: str = ""


def silence_of(view: NodeView | None, problem: str, age_s: float, silent_s: float) -> Silence:
    """Why a node sends nothing; empty if it does.

    Args:
        view: The node; `None` once it has left the job.
        problem: Why it sends no snapshots, by its agent.
        age_s: Age of its last snapshot, or of the request for the first one.
        silent_s: So old the last snapshot is at most while all is well.
    """
    if problem:
        return Silence("not shown", problem)
    if view is None:
        return Silence("left", "The node has left the job.")
    if view.state == "silent":
        since = seconds_text(view.last_seen_s or 0.0)
        return Silence("silent", f"{view.name} has sent nothing for {since}.")
    if view.state in ("ended", "failed"):
        return Silence("lost", f"{view.name}: {view.problem} It is being tried again.")
    if view.state != "live":
        return Silence("lost", f"{view.name}: its agent is being started again.")
    if age_s > silent_s:
        since = seconds_text(age_s)
        return Silence("silent", f"{view.name} answers, but has sent no reading for {since}.")
    return Silence()


def node_groups(state: JobState) -> list[NodeGroup]:
    """The rows of the nodes page: those with findings or problems first.

    Nodes are one row whose ranks have stopped at the same places. Where ranks work is another line
    on each node, and in each sample.
    """
    worst = _worst_by_node(state)
    usual_s = _usual_quiet_s(state)
    groups: defaultdict[tuple[str, object], list[NodeView]] = defaultdict(list)
    for view in state.nodes:
        doing = _activity(view, usual_s)
        trouble = (view.state, view.reason, worst.get(view.name), bool(_unread(view)))
        groups[doing, trouble].append(view)
    found = [
        NodeGroup(tuple(views), doing, worst.get(views[0].name))
        for (doing, _), views in groups.items()
    ]
    return sorted(found, key=_trouble)


def _usual_quiet_s(state: JobState) -> float:
    """For how long a rank may make no progress and still count as working.

    Nodes reach a shorter time one after the other, and would be two rows until all have. In a job
    of long steps ranks are as quiet in each of them, unless it is known to stand still.
    """
    if any(each.rule in STANDSTILLS and each.severity > Severity.INFO for each in state.findings):
        return STALLED_S
    usual_s = most_s(
        most_s(row.usual_s or 0 for row in view.summary.ranks)
        for view in state.nodes
        if view.summary is not None and view.summary.ranks
    )
    return max(STALLED_S, HABIT * usual_s)


def _trouble(group: NodeGroup) -> tuple[int, int]:
    """Sort key, smallest first."""
    return -int(group.severity or 0), int(group.nodes[0].state not in ("failed", "ended", "silent"))


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


def node_row(group: NodeGroup) -> Row:
    """A row of the nodes page; numbers of several nodes are added, shares are the largest."""
    first = group.nodes[0]
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
            cell(_percent(row.memory_percent for row in rows)),
            cell(_percent(row.shm_percent for row in rows)),
            cell(_percent(row.fds_percent for row in rows)),
            cell(_percent(row.maps_percent for row in rows)),
            _node_doing(group),
        ),
        tone="" if first.state == "live" else "dim",
        mark=MARKS[group.severity] if group.severity else Span(" "),
    )


def _percent(shares: Iterable[int | None]) -> str:
    """The largest share."""
    known = [share for share in shares if share is not None]
    return f"{max(known)}%" if known else "-"


def _node_doing(group: NodeGroup) -> Line:
    view = group.nodes[0]
    if view.problem:
        return cell(view.problem, NODE_TONES.get(view.state, ""))
    if view.state in ("waiting", "starting"):
        return cell("starting its agent", "dim")
    activity = _activity(view)
    if len(group.nodes) > 1:
        activity = f"each: {group.doing}" if has_ranks(group) else group.doing
    unread = _unread(view)
    if unread:
        return line((f"{activity}; ", ""), (unread, "warning"))
    return cell(activity)


def _activity(view: NodeView, working_s: float = 0.0) -> str:
    """What the ranks of a node do: `1 at save.py:9, 7 in all_reduce`.

    Those that are in no collective come first, because the end of the line may be cut.

    Args:
        view: The node.
        working_s: Of ranks that have made progress in so many seconds, do not say where they are
            at this moment.
    """
    rows = view.summary.ranks if view.summary is not None else ()
    doing = Counter(
        (False, "working")
        if not row.is_ended and PlacedRank(view, row).quiet_s < working_s
        else (row.place is not None and not row.is_ended, _place_words(row))
        for row in rows
    )
    if not doing:
        return node_words(view)
    common = sorted(doing.items(), key=lambda item: (-item[1], item[0][1]))[:3]
    common.sort(key=lambda item: item[0][0])
    return ", ".join(f"{count} {words}" for (_, words), count in common)


def _place_words(row: RankRow) -> str:
    """Where a rank is, as far as that is known."""
    if row.is_ended:
        return "ended"
    if row.place:
        return f"in {row.place}"
    return f"at {row.line}" if row.line else row.state


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
            cell(seconds_text(still_s) if still_s >= MENTIONED_S else "-"),
            cell("-" if row.waits_percent is None or row.is_ended else f"{row.waits_percent}%"),
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
        StatusPart(cell(f"{ranks} rank{'s' if ranks != 1 else ''}"), 6),
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
    """The most urgent findings with their summaries; why there is nothing to see."""
    lines: list[Line] = []
    if state.problem:
        lines += headed(" ", "critical", state.problem, width)
    urgent = _most_urgent(state)
    for severity, words in urgent[:FINDINGS_SHOWN]:
        mark = MARKS[severity]
        lines += headed(f" {mark.text} ", mark.tone, words, width)
    more = len(urgent) - FINDINGS_SHOWN
    if more > 0:
        lines.append(cell(f"   and {more} more: f", "dim"))
    unread = [view for view in state.nodes if _unread(view)]
    if unread:
        others = f" ({len(unread) - 1} more nodes like that)" if len(unread) > 1 else ""
        sentence = f"{unread[0].name}: {_unread(unread[0])}{others}"
        lines += headed(" ", "warning", sentence, width)
    for sentence in _why_empty(state):
        lines += headed(" ", "dim", sentence, width)
    return tuple(lines)


def _most_urgent(state: JobState) -> list[tuple[Severity, str]]:
    """The findings of the job, and the critical ones of nodes that answer; most urgent first."""
    found = [(each.severity, each.summary) for each in state.findings]
    critical = Severity.CRITICAL.word
    for view in state.nodes:
        summary = view.summary if view.state == "live" else None
        if summary is None or all(row.severity != critical for row in summary.findings):
            continue
        found += [
            (Severity.CRITICAL, f"{view.name}: {finding_words(row)}")
            for row in own_findings(view, state.findings)
            if row.severity == critical
        ]
    return sorted(found, key=lambda pair: -pair[0])


def lines_above(
    sentence: str, findings: Sequence[JobFinding], node: str, width: int
) -> tuple[Line, ...]:
    """Above the dashboard of a node: why it is silent, and the findings of the job that name it.

    Why the job makes no progress is said above each node: it is healthy only by itself.
    """
    lines = list(headed(" ", "critical", sentence, width)) if sentence else []
    about = [each for each in findings if each.node == node or each.rule in STANDSTILLS]
    for each in about[:FINDINGS_SHOWN]:
        mark = MARKS[each.severity]
        lines += headed(f" {mark.text} the job: ", mark.tone, each.summary, width)
    return tuple(lines)


def _why_empty(state: JobState) -> list[str]:
    """Why no node shows a process, and what to try; empty if one does or may do so soon."""
    nodes = state.nodes
    if not nodes or any(view.summary is not None and view.summary.ranks for view in nodes):
        return []
    if all(view.state in ("failed", "ended") for view in nodes):
        first = nodes[0]
        each = f"{first.name}: {first.problem}" if len(nodes) > 1 else first.problem
        return [f"No node can be read. {each}", f"Try: {first.fix}"]
    live = [view for view in nodes if view.state == "live"]
    rows = [view.summary.node for view in live if view.summary is not None]
    if len(rows) < len(live) or any(row.state == "starting" for row in rows) or not live:
        return []
    where = "any node" if len(live) > 1 else live[0].name
    problems = [f"{view.name}: {problem}" for view in live for problem in _problems(view)]
    return [
        *problems[:1],
        f"There is no torch job on {where}. New jobs are looked for every few seconds; those of "
        "other users are found by root only, and --match NAME=VALUE leaves out jobs without that "
        "variable.",
    ]


def _problems(view: NodeView) -> tuple[str, ...]:
    return view.summary.node.problems if view.summary is not None else ()


def _unread(view: NodeView) -> str:
    """What the agent of a live node may not read, in one sentence."""
    return view.summary.node.unread if view.summary is not None and not view.problem else ""


class NamedFinding(NamedTuple):
    """A finding of the job, or of one node, and the process that it names."""

    severity: Severity
    summary: str
    rule: str
    node: str | None
    pid: int | None
    label: str = ""
    """Of the process, for a finding of a node."""
    full: JobFinding | None = None
    """For a finding of the job; of others the node has the evidence."""
    number: int = 0
    """Its place among those of the same rule about the same process."""
    is_old: bool = False
    """Whether its node does not answer any more."""

    @property
    def key(self) -> tuple[str, str | None, int | None, bool, int]:
        """Identifies it across states; a summary may have numbers that change."""
        return (self.rule, self.node, self.pid, self.full is not None, self.number)


def named_findings(state: JobState) -> list[NamedFinding]:
    """The findings of the job, and those of each node that the job's do not say better.

    Most urgent first; those that nodes which do not answer have sent before come last.
    """
    found = [
        NamedFinding(each.severity, each.summary, each.rule, each.node, each.pid, full=each)
        for each in state.findings
    ]
    found += [
        NamedFinding(
            _BY_WORD.get(row.severity, Severity.INFO),
            finding_words(row),
            row.rule,
            view.name,
            row.pid,
            row.label,
            is_old=view.state != "live",
        )
        for view in state.nodes
        for row in own_findings(view, state.findings)
    ]
    found.sort(key=lambda each: (each.is_old, -each.severity))
    counts: Counter[object] = Counter()
    for place, each in enumerate(found):
        found[place] = each._replace(number=counts[each.key])
        counts[each.key] += 1
    return found


def finding_row(item: NamedFinding) -> Row:
    """A row of the list of findings."""
    where = item.node or "the job"
    return Row(
        item.key,
        (cell(where, "title" if item.node else "dim"), cell(item.summary)),
        tone="dim" if item.is_old else "",
        mark=MARKS[item.severity],
    )


def finding_details(item: NamedFinding | None, state: JobState, width: int) -> tuple[Line, ...]:
    """A finding in full, and what enter opens."""
    if item is None:
        return (cell(" No findings: no known problems, on any node that answers."),)
    if item.full is not None:
        lines = _in_full(item.full, width)
    else:
        about = f"{item.node}{f', {item.label}' if item.label else ''}: {item.severity.word}"
        old = ", as last received: the node does not answer" if item.is_old else ""
        about = f"  {about}, {item.rule}{old}"
        lines = [*headed("", "title", item.summary, width), cell(about), ()]
    opens = "It names no node."
    if item.node is not None and item.pid is None and root_on(state, item.node) is None:
        opens = f"Nothing of {item.node} can be opened."
    elif item.node is not None:
        named = " at the process it names" if item.pid is not None else ""
        opens = f"enter opens {item.node}{named}"
    return (*lines, cell(opens, "dim"))


def root_on(state: JobState, node: str) -> int | None:
    """A process of the first job of a node; `None` without any."""
    view = next((each for each in state.nodes if each.name == node), None)
    ranks = view.summary.ranks if view is not None and view.summary is not None else ()
    return ranks[0].pid if ranks else None


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
    if view.problem:
        lines = headed(f" {view.host or view.name}  ", "title", view.problem, width)
        return tuple(lines[:2])
    words = [node_words(view)] if view.summary is not None else []
    if view.version:
        words.append(f"mpwatch {view.version}")
    words.append(clock_words(view))
    title, said = view.host or view.name, ", ".join(words)
    if len(group.nodes) > 1:
        title, said = f"{len(group.nodes)} nodes", names_text(each.name for each in group.nodes)
    stacks = view.summary.node.stacks if view.summary is not None else ()
    second = "; ".join((*stacks, *_problems(view)))
    if second and len(group.nodes) > 1:
        second = f"{view.name}: {second}"
    return (
        cut(line((f" {title}  ", "title"), said), width),
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
