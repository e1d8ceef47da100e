"""Reports as plain text for a terminal, a pipe or a bug report."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from mpwatch.collect.job.jobs import Job, JobProcess
from mpwatch.describe.states import STATE_WORDS
from mpwatch.model.cmdline import python_program
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.host import Check, CheckState, HostSample
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Flow, Process, Segment, Snapshot
from mpwatch.model.units import (
    DASH,
    bytes_text,
    count_text,
    percent_text,
    seconds_text,
)
from mpwatch.model.waits import WaitChain, WaitGraph, WaitLink
from mpwatch.report.job_end import ended_badly, last_words
from mpwatch.report.json import utc_text
from mpwatch.report.stack_summary import crowd_lines, stack_lines
from mpwatch.report.table import Column, Emphasis, Paper, table

PLAIN = Paper()
ENDS_SHOWN = 8
LISTED_ALIKE = 6
"""More workers than this of one parent are one line of a listing."""

_CHECK_EMPHASIS: dict[CheckState, Emphasis] = {
    "ok": "good",
    "note": "plain",
    "warning": "warning",
    "problem": "bad",
}


def dump_text(snapshot: Snapshot, *, with_stacks: bool = True, paper: Paper = PLAIN) -> str:
    """The whole job at one moment: findings, tree, host, segments, flows, stacks, problems."""
    lines = [*_title(snapshot, paper), *_findings(snapshot, paper, is_brief=True)]
    counted = f"{len(snapshot.living())} alive"
    if ended := len(snapshot.processes) - len(snapshot.living()):
        counted += f", {ended} ended"
    lines += [*heading("processes", counted, paper), *process_lines(snapshot, paper)]
    lines += [*heading("host", "", paper), *host_lines(snapshot.host, paper)]
    if snapshot.segments:
        count = len(snapshot.segments)
        note = f"{count_text(count)} segment{'s' if count != 1 else ''}"
        lines += [*heading("shared memory", note, paper), *segment_lines(snapshot, paper)]
    if snapshot.flows:
        lines += heading("flows", "tensors from process to process", paper)
        lines += flow_lines(snapshot.flows, snapshot, paper)
    if with_stacks and (stacks := stack_lines(snapshot, paper)):
        lines += [*heading("stacks", "innermost call first", paper), *stacks]
    return _text([*lines, *_waits(snapshot, paper), *_problems(snapshot, paper)])


def diagnose_text(snapshot: Snapshot, *, paper: Paper = PLAIN) -> str:
    """What is wrong, where, why and what to do; then who waits for whom."""
    lines = [*_title(snapshot, paper), *_findings(snapshot, paper, is_brief=False)]
    lines += [*_passed(snapshot, paper), *_end(snapshot, paper)]
    if together := crowd_lines(snapshot, paper):
        lines += [*heading("together", "what most of them do", paper), *together]
    return _text([*lines, *_waits(snapshot, paper), *_problems(snapshot, paper)])


def doctor_text(checks: Sequence[Check], *, paper: Paper = PLAIN) -> str:
    """One entry a check: its state, what was found, what it means here, how to change it."""
    lines: list[str] = []
    for check in checks:
        state = paper.paint(f"{check.state:<8}", _CHECK_EMPHASIS[check.state])
        first, *rest = paper.wrap(f"{check.name:<18} {check.value}", " " * 9, " " * 28)
        lines += [state + first[8:], *rest]
        lines += paper.wrap(check.meaning, " " * 28)
        if check.fix:
            lines += paper.wrap(f"fix: {check.fix}", " " * 28, " " * 33)
    counts = Counter(check.state for check in checks)
    bad = [f"{counts[state]} {state}" for state in ("problem", "warning") if counts[state]]
    return _text([*lines, "", ", ".join(bad) if bad else "nothing here stands in the way"])


def ps_text(jobs: Sequence[Job], *, paper: Paper = PLAIN) -> str:
    """Every job as a tree: who, what for, how much memory, hook or none."""
    if not jobs:
        return "No torch job and no hooked process runs here."
    columns = [
        Column("PID", is_number=True),
        Column("ROOT", is_number=True),
        Column("ROLE"),
        Column("STATE"),
        Column("RSS", is_number=True),
        Column("TORCH"),
        Column("HOOK"),
        Column("COMMAND", is_flexible=True, floor=20),
    ]
    rows = [row for job in jobs for row in _listed(job)]
    return _text(table(columns, rows, paper))


def _listed(job: Job) -> Iterator[list[str]]:
    """A row a process; many equal ones in one row."""
    for _, same in groupby(job.processes, key=_equality_key):
        alike = list(same)
        shown = alike if len(alike) <= LISTED_ALIKE else alike[:1]
        for process in shown:
            more = len(alike) - 1 if len(shown) < len(alike) else 0
            yield [
                str(process.process.pid),
                str(job.root.process.pid),
                f"{process.role} and {more} more" if more else _role(process),
                STATE_WORDS.get(process.state, process.state),
                bytes_text(process.rss_bytes),
                "yes" if process.has_torch else DASH,
                "yes" if process.has_hook else DASH,
                " ".join(process.cmdline) or f"[{process.name}]",
            ]


def _equality_key(process: JobProcess) -> tuple[object, ...]:
    return process.parent_pid, process.role, process.cmdline, process.has_hook


def _role(process: JobProcess) -> str:
    """The role with its number: `loader-worker 3`, `rank 1`."""
    number = process.rank if process.role == "rank" else process.worker_id
    return process.role if number is None else f"{process.role} {number}"


def _title(snapshot: Snapshot, paper: Paper) -> list[str]:
    """What job this is and what is known of it."""
    root = snapshot.get(snapshot.root)
    moment = utc_text(snapshot.wall_s)[:19].replace("T", " ")
    parts = [f"{program_of(snapshot)}  {snapshot.root.pid}", f"{moment} UTC"]
    if root is not None:
        python, torch = root.hook.python or root.sample.python_version, root.hook.torch
        parts += [f"python {python}"] if python else []
        parts += [f"torch {torch}"] if torch else []
        parts += [method for method in (root.start_method, root.sharing_strategy) if method]
    parts.append(_hooks(snapshot))
    if not snapshot.living():
        parts.append("the job has ended")
    if lost := sum(process.hook.lost for process in snapshot.processes):
        parts.append(f"events lost {count_text(lost)}")
    return pack(parts, paper)


def _hooks(snapshot: Snapshot) -> str:
    """In how many processes the hook answers, or did while they lived."""
    living = snapshot.living()
    states = Counter(process.hook.state for process in living)
    known = [("in", states["ready"]), ("pending in", states["pending"])]
    if parts := [f"{word} {count}" for word, count in known if count]:
        return f"hook {', '.join(parts)} of {len(living)}"
    told = sum(process.hook.events > 0 for process in snapshot.processes)
    return f"hook was in {told} of {len(snapshot.processes)}" if told and not living else "no hook"


def _findings(snapshot: Snapshot, paper: Paper, *, is_brief: bool) -> list[str]:
    """The findings, or that there are none."""
    present = [finding for finding in snapshot.findings if finding.resolved_s is None]
    if not present:
        return [] if is_brief else ["", "Nothing was found that is known to be wrong."]
    lines = heading("findings", _counted(present), paper)
    return [*lines, *finding_lines(present, snapshot, paper)[:-1]]


def _passed(snapshot: Snapshot, paper: Paper) -> list[str]:
    """What was found earlier and no longer holds, a line each."""
    passed = [finding for finding in snapshot.findings if finding.resolved_s is not None]
    if not passed:
        return []
    lines = heading("earlier", "it no longer holds", paper)
    for finding in passed:
        words = f"{finding.severity.word}  {finding.rule}  {finding.summary}"
        lines += paper.wrap(words, "  ", "      ")
    return lines


def _end(snapshot: Snapshot, paper: Paper) -> list[str]:
    """How a job ended that did not end well, and the exceptions it ended with."""
    ended = ended_badly(snapshot)
    if not ended:
        return []
    lines = heading("end", "the job is over", paper)
    for process in ended[:ENDS_SHOWN]:
        how = process.ended.words if process.ended is not None else ""
        lines += paper.wrap(f"{process.label} {process.pid} ended: {how}", "  ", "      ")
    if len(ended) > ENDS_SHOWN:
        lines.append(f"  and {len(ended) - ENDS_SHOWN} more")
    for entry, words, place in last_words(snapshot):
        who = snapshot.get(entry.process)
        of = f"{who.label} {who.pid}: " if who is not None else ""
        at = f"  at {place}" if place else ""
        lines += paper.wrap(f"{of}{words}{at}", "  ", "      ")
    return lines


def _counted(findings: Sequence[Finding]) -> str:
    counts = Counter(finding.severity for finding in findings)
    return ", ".join(f"{counts[s]} {s.word}" for s in sorted(Severity, reverse=True) if counts[s])


def _waits(snapshot: Snapshot, paper: Paper) -> list[str]:
    lines = wait_lines(snapshot.waits, paper)
    return [*heading("waits", "who waits for whom", paper), *lines] if lines else []


def _problems(snapshot: Snapshot, paper: Paper) -> list[str]:
    lines = problem_lines(snapshot, paper)
    return [*heading("could not be read", "", paper), *lines] if lines else []


def _text(lines: Sequence[str]) -> str:
    return "\n".join(lines)


WIDE_COLUMNS = 110
"""From this width on, what a process does stands in its row and not below it."""
NAMES_SHOWN = 4
"""How many processes are named before the rest is counted."""

SEVERITY_EMPHASIS: dict[Severity, Emphasis] = {
    Severity.CRITICAL: "bad",
    Severity.WARNING: "warning",
    Severity.INFO: "plain",
}


def heading(title: str, note: str, paper: Paper) -> list[str]:
    """An empty line and the name of a section."""
    return ["", paper.paint(title.upper(), "strong") + (f"  {note}" if note else "")]


def process_lines(snapshot: Snapshot, paper: Paper) -> list[str]:
    """The tree, parents before children, one line a process and what it does."""
    is_wide = paper.width >= WIDE_COLUMNS
    has_private = any(process.private_bytes is not None for process in snapshot.processes)
    columns = [
        Column("PID", is_flexible=True, floor=14),
        Column("STATE"),
        Column("CPU", is_number=True),
        Column("PRIVATE" if has_private else "RSS", is_number=True),
        Column("SHM", is_number=True),
        Column("FDS", is_number=True),
        Column("MAPS", is_number=True),
        Column("THR", is_number=True),
        Column("HOOK"),
    ]
    rows = [_process_row(process, has_private, is_wide) for process in snapshot.processes]
    if is_wide:
        columns.append(Column("DOING", is_flexible=True, floor=20))
        rows = [
            [*row, doing_words(process)]
            for row, process in zip(rows, snapshot.processes, strict=True)
        ]
        return table(columns, rows, paper)
    titles, *lines = table(columns, rows, paper)
    out = [titles]
    for line, process in zip(lines, snapshot.processes, strict=True):
        out.append(line)
        if doing_words(process):
            out += paper.wrap(doing_words(process), "  " * process.depth + "      ")
    return out


def doing_words(process: Process) -> str:
    """What a process does, or how it ended."""
    return f"ended: {process.ended.words}" if process.ended else process.doing


def finding_lines(findings: Sequence[Finding], snapshot: Snapshot, paper: Paper) -> list[str]:
    """Every finding in full: what, where, why, the numbers, what to do; effects below causes.

    Cause and advice that several have in common are told with the first of them.
    """
    lines: list[str] = []
    told: dict[tuple[str, str], Finding] = {}
    for finding in _causes_first(findings):
        first = told.setdefault((finding.cause, finding.advice), finding)
        lines += _finding(finding, first, snapshot, paper)
    return lines


def host_lines(host: HostSample, paper: Paper) -> list[str]:
    """The room that is left around the job."""
    parts = [f"{host.hostname}  Linux {host.kernel}"]
    if host.usable_cpus is not None and host.cpu_count is not None:
        parts.append(f"cpus {host.usable_cpus} usable of {host.cpu_count}")
    if host.memory_total_bytes is not None:
        parts.append(
            f"memory {bytes_text(host.memory_available_bytes)} free"
            f" of {bytes_text(host.memory_total_bytes)}"
        )
    if host.shm is not None:
        parts.append(
            f"{host.shm.path} {bytes_text(host.shm.free_bytes)} free"
            f" of {bytes_text(host.shm.total_bytes)}"
        )
    if host.cgroup is not None and host.cgroup.memory_limit_bytes is not None:
        parts.append(
            f"cgroup memory {bytes_text(host.cgroup.memory_bytes)}"
            f" of {bytes_text(host.cgroup.memory_limit_bytes)}"
        )
    if host.cgroup is not None and host.cgroup.pids_limit is not None:
        parts.append(
            f"cgroup pids {count_text(host.cgroup.pids_current)}"
            f" of {count_text(host.cgroup.pids_limit)}"
        )
    return pack(parts, paper)


def segment_lines(snapshot: Snapshot, paper: Paper) -> list[str]:
    """Segments joined over all processes, those of one maker with the same users in one line."""
    columns = [
        Column("MADE BY", is_flexible=True),
        Column("KIND"),
        Column("COUNT", is_number=True),
        Column("SIZE", is_number=True),
        Column("USED", is_number=True),
        Column("OLDEST", is_number=True),
        Column("MAPPED BY", is_flexible=True, floor=16),
    ]
    return table(columns, segment_rows(snapshot), paper)


def segment_rows(snapshot: Snapshot) -> list[list[str]]:
    """Maker, kind, count, size, used bytes, age of the oldest, users; the largest first."""
    groups: dict[tuple[object, ...], list[Segment]] = defaultdict(list)
    for segment in snapshot.segments:
        waiting = () if segment.mappers else segment.holders
        key = (segment.creator_pid, segment.kind, segment.is_linked, segment.mappers, waiting)
        groups[key].append(segment)
    ranked = sorted(groups.values(), key=lambda group: -(_total(group) or 0))
    return [
        [
            _maker(group[0], snapshot),
            group[0].kind + (" named" if group[0].is_linked and group[0].kind == "torch" else ""),
            count_text(len(group)),
            bytes_text(_total(group)),
            bytes_text(_sum(segment.allocated_bytes for segment in group)),
            seconds_text(_oldest_s(group, snapshot.wall_s)),
            _users(group[0], snapshot),
        ]
        for group in ranked
    ]


def _oldest_s(group: Sequence[Segment], wall_s: float) -> float | None:
    """The age of the oldest."""
    ages = [segment.age_s(wall_s) for segment in group]
    return max((age for age in ages if age is not None), default=None)


def _users(segment: Segment, snapshot: Snapshot) -> str:
    """Who maps it; a segment on its way is mapped by nobody, and its sender has it open."""
    if segment.mappers or not segment.holders:
        return _names(segment.mappers, snapshot) or "nobody"
    return f"on its way, open in {_names(segment.holders, snapshot)}"


def flow_lines(flows: Sequence[Flow], snapshot: Snapshot, paper: Paper) -> list[str]:
    """Who sends tensors to whom, the most bytes first."""
    columns = [
        Column("FROM", is_flexible=True),
        Column("TO", is_flexible=True),
        Column("TENSORS", is_number=True),
        Column("BYTES", is_number=True),
        Column("COPIED", is_number=True),
        Column("P50", is_number=True),
        Column("P99", is_number=True),
    ]
    rows = [
        [
            name_of(flow.sender, snapshot),
            name_of(flow.receiver, snapshot),
            count_text(flow.tensors),
            bytes_text(flow.bytes),
            f"{percent_text(100 * flow.copied_bytes / flow.bytes)} %" if flow.bytes else DASH,
            seconds_text(flow.latency_p50_s),
            seconds_text(flow.latency_p99_s),
        ]
        for flow in sorted(flows, key=lambda flow: -flow.bytes)
    ]
    return table(columns, rows, paper)


def problem_lines(snapshot: Snapshot, paper: Paper) -> list[str]:
    """What could not be read; the same reason in many processes is said once."""
    affected: dict[str, list[ProcessId]] = defaultdict(list)
    for problem in (*snapshot.problems, *snapshot.host.problems):
        affected.setdefault(problem, [])
    for process in snapshot.processes:
        for problem in (*process.sample.problems, *process.problems):
            if process.process not in affected[problem]:
                affected[problem].append(process.process)
        if process.hook.state == "pending" and process.ended is None:
            affected[f"hook pending: {process.hook.reason}"].append(process.process)
    lines: list[str] = []
    for problem, processes in affected.items():
        where = f"  ({_names(processes, snapshot)})" if processes else ""
        lines += paper.wrap(problem + where, "  ", "    ")
    return lines


def name_of(process: ProcessId | None, snapshot: Snapshot) -> str:
    """`worker 3 41826`, or the bare pid of a process that is not among those observed."""
    if process is None:
        return DASH
    known = snapshot.get(process)
    return f"{known.label} {process.pid}" if known else str(process.pid)


def program_of(snapshot: Snapshot) -> str:
    """The script a job runs, else the name of its process."""
    root = snapshot.get(snapshot.root)
    if root is None:
        return "job"
    return python_program(root.sample.cmdline).name or root.sample.name


def pack(parts: Sequence[str], paper: Paper) -> list[str]:
    """Parts side by side, as many to a line as fit, none broken where it can be avoided."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + 3 + len(part) <= paper.width:
            lines[-1] += f"   {part}"
        else:
            lines += paper.wrap(part)
    return lines


def _process_row(process: Process, has_private: bool, is_wide: bool) -> list[str]:
    sample = process.sample
    map_limit = sample.maps.limit if sample.maps and is_wide else None
    rss_bytes = sample.memory.rss_bytes if sample.memory else None
    threads = sample.thread_count if sample.thread_count is not None else len(process.threads)
    return [
        f"{'  ' * process.depth}{process.pid} {process.label}",
        "ended" if process.is_gone else STATE_WORDS.get(sample.state, sample.state),
        percent_text(process.cpu_percent),
        bytes_text(process.private_bytes if has_private else rss_bytes),
        bytes_text(process.shm_bytes),
        _of(sample.fds.used, sample.fds.soft_limit) if sample.fds else DASH,
        _of(sample.maps.used, map_limit) if sample.maps else DASH,
        count_text(threads or None),
        process.hook.state,
    ]


def _of(used: int | None, limit: int | None) -> str:
    return count_text(used) + (f"/{count_text(limit)}" if limit is not None else "")


def _causes_first(findings: Sequence[Finding]) -> list[Finding]:
    """Findings in their order, each followed by those it causes; each once, also in a cycle."""
    rules = {finding.rule for finding in findings}
    ordered: list[Finding] = []

    def tell(finding: Finding) -> None:
        if any(finding is told for told in ordered):
            return
        ordered.append(finding)
        for effect in findings:
            if effect.effect_of == finding.rule:
                tell(effect)

    for finding in findings:
        if finding.effect_of not in rules:
            tell(finding)
    for finding in findings:
        tell(finding)
    return ordered


def _finding(finding: Finding, first: Finding, snapshot: Snapshot, paper: Paper) -> list[str]:
    """One finding; `first` is the one that has told its cause and advice, often itself."""
    word = finding.severity.word
    word = word.upper() if finding.severity >= Severity.CRITICAL else word
    title = f"{paper.paint(word, SEVERITY_EMPHASIS[finding.severity])}  {finding.rule}  "
    lines = [title + _where(finding, snapshot), *paper.wrap(finding.summary, "  ")]
    if finding.effect_of:
        lines += _labelled("follows", f"from {finding.effect_of}", paper)
    if finding.eta_s is not None:
        lines += _labelled("left", seconds_text(finding.eta_s), paper)
    for number, evidence in enumerate(finding.evidence):
        lines += _labelled("seen" if number == 0 else "", evidence, paper)
    if finding is first:
        lines += _labelled("why", finding.cause, paper)
        lines += _labelled("do", finding.advice, paper)
    elif finding.cause or finding.advice:
        lines += _labelled("why, do", f"as above, see {_where(first, snapshot)}", paper)
    return [*lines, ""]


def _where(finding: Finding, snapshot: Snapshot) -> str:
    """Whom it is about."""
    where = name_of(finding.process, snapshot) if finding.process else "the whole job"
    return where + (f" thread {finding.tid}" if finding.tid is not None else "")


def _labelled(label: str, text: str, paper: Paper) -> list[str]:
    return paper.wrap(text, f"  {label:<8}", " " * 10) if text else []


def _maker(segment: Segment, snapshot: Snapshot) -> str:
    if segment.creator is not None:
        return name_of(segment.creator, snapshot)
    return f"{segment.creator_pid} (not here)" if segment.creator_pid is not None else "unknown"


def _names(processes: Sequence[ProcessId], snapshot: Snapshot) -> str:
    """A few names, then how many more."""
    known = [snapshot.get(process) for process in processes[:NAMES_SHOWN]]
    names = [
        process.label if process else str(identity.pid)
        for process, identity in zip(known, processes, strict=False)
    ]
    more = len(processes) - len(names)
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")


def _total(group: Sequence[Segment]) -> int | None:
    return _sum(segment.size_bytes for segment in group)


def _sum(values: Iterable[int | None]) -> int | None:
    """The sum, or `None` if any part is unknown: a partial sum would look like the whole."""
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


MOVING = ("progress", "ordinary")
MOVING_SHOWN = 4
BEGINNINGS_SHOWN = 3
"""Of chains that go on alike, those that are told with what they wait for."""
MOMENT_S = 1.0
"""A wait that goes on by itself and is younger than this is how any busy job looks."""


def wait_lines(waits: WaitGraph, paper: Paper) -> list[str]:
    """Chains from who waits to what would have to move; the hopeless ones first."""
    stuck = [chain for chain in waits.chains if chain.verdict not in MOVING]
    moving = [
        chain for chain in waits.chains if chain.verdict in MOVING and not _is_of_a_moment(chain)
    ]
    lines: list[str] = []
    for same in (*_equal_chains(stuck), *_equal_chains(moving)[:MOVING_SHOWN]):
        lines += [*_chain_lines(same, paper), ""]
    left = len(_equal_chains(moving)) - MOVING_SHOWN
    if left > 0:
        lines += [f"  and {left} more that go on by themselves", ""]
    return lines[:-1]


def _is_of_a_moment(chain: WaitChain) -> bool:
    """Whether a chain began just now."""
    since_s = chain.links[0].since_s if chain.links else None
    return since_s is not None and since_s < MOMENT_S


def _equal_chains(chains: Iterable[WaitChain]) -> list[list[WaitChain]]:
    """Chains that differ only in who stands at their beginning, together."""
    groups: dict[object, list[WaitChain]] = {}
    for chain in chains:
        tail = tuple((link.process, link.words) for link in chain.links[1:])
        alone = chain if not tail else None
        groups.setdefault((chain.verdict, tail, alone), []).append(chain)
    return list(groups.values())


def _chain_lines(same: Sequence[WaitChain], paper: Paper) -> list[str]:
    """One chain, and who else waits for the same."""
    chain = same[0]
    lines = _beginnings(same, paper)
    for depth, link in enumerate(chain.links[1:]):
        arrow = "   " * depth + "<- "
        lines += paper.wrap(_link_words(link), f"  {arrow}", " " * (len(arrow) + 2))
    verdict = chain.verdict.replace("-", " ")
    conclusion = f": {chain.conclusion}" if chain.conclusion else ""
    first, *rest = paper.wrap(f"{verdict}{conclusion}", "  ", "    ")
    emphasis: Emphasis = "bad" if chain.verdict in ("cycle", "dead-end") else "plain"
    return [*lines, first.replace(verdict, paper.paint(verdict, emphasis), 1), *rest]


def _beginnings(same: Sequence[WaitChain], paper: Paper) -> list[str]:
    """Who stands at the beginning of chains that go on alike, and what each waits for."""
    alike: dict[str, list[WaitLink]] = {}
    for chain in same:
        if chain.links:
            alike.setdefault(chain.links[0].words, []).append(chain.links[0])
    lines: list[str] = []
    for link, *others in list(alike.values())[:BEGINNINGS_SHOWN]:
        lines += paper.wrap(_link_words(link), "  ", "  ")
        who = ", ".join(other.who for other in others)
        if others:
            so = "so do" if others[1:] else "so does"
            lines += paper.wrap(f"and {so} {who}", "  ", "    ")
    left = sum(map(len, list(alike.values())[BEGINNINGS_SHOWN:]))
    if left:
        lines += paper.wrap(f"and {left} more wait{'s' if left == 1 else ''}", "  ", "    ")
    return lines


def _link_words(link: WaitLink) -> str:
    since = f"  for {seconds_text(link.since_s)}" if link.since_s is not None else ""
    return f"{link.who} {link.words}{since}"
