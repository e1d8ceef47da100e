"""Reports as plain text for a terminal, a pipe or a bug report.

First the reports (`dump`, `diagnose`, `doctor`, `ps`, the plan of an injection), then the sections
in the order in which they appear, then what several sections use. The HTML report shares rows with
these sections.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from msgspec import Struct

from mpwatch.collect.hook.discovery import NO_HOOK
from mpwatch.collect.job.jobs import Job, JobProcess
from mpwatch.describe.account import NO_ACCOUNT, account_rows, certainty_words
from mpwatch.describe.findings import (
    CAUSE,
    FIX,
    FORECAST,
    labelled_fields,
    no_findings_lines,
    problems_of,
    severity_word,
    subject_of,
    unresolved,
)
from mpwatch.describe.frames import own_frames, place_words
from mpwatch.describe.processes import (
    can_have_hook,
    full_name,
    full_name_of,
    joined_names,
    lasting_text,
    names_text,
    part_words,
    process_state,
    program_of,
    role_name,
    state_word,
    unique_names,
)
from mpwatch.describe.progress import progress_sentence
from mpwatch.describe.waits import is_passing
from mpwatch.diagnose.analysis.exits.kinds import failed_processes, last_exceptions
from mpwatch.diagnose.analysis.stack_merge import merged_stacks
from mpwatch.model.cmdline import job_words
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.host import Check, CheckState, HostSample
from mpwatch.model.ids import ProcessId
from mpwatch.model.injection import ALREADY_THERE, LEFT_ALONE, InjectionPlan, PlannedInjection
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Flow, Process, Segment, Snapshot, Thread
from mpwatch.model.units import (
    DASH,
    bytes_text,
    count_text,
    percent_text,
    processes_text,
    seconds_text,
)
from mpwatch.model.waits import WaitChain, WaitEdge, WaitLink
from mpwatch.report.json import utc_text
from mpwatch.report.table import (
    PLAIN,
    Column,
    Emphasis,
    TextStyle,
    cell_width,
    cut,
    cut_start,
    table,
)

THREADS_SHOWN = 6
PLANNED_ALIKE = 3

SEVERITY_EMPHASIS: Mapping[Severity, Emphasis] = {
    Severity.CRITICAL: "bad",
    Severity.WARNING: "warning",
    Severity.INFO: "plain",
}
_CHECK_EMPHASIS: Mapping[CheckState, Emphasis] = {
    "ok": "good",
    "note": "plain",
    "warning": "warning",
    "problem": "bad",
}


_EFFECTS_OF_PLAN = (
    "Processes that the job starts later get the hook as well. mpwatch detach PID undoes all of "
    "this: it restores every function, ends the hook's thread and removes its files. The program's "
    "results, output and exit code do not change."
)


def dump_text(snapshot: Snapshot, *, with_stacks: bool = True, style: TextStyle = PLAIN) -> str:
    """The whole job: findings, tree, host, segments, flows, stacks, waits, problems."""
    lines = _title(snapshot, style)
    lines += _findings(snapshot, style) if unresolved(snapshot) else []
    counted = f"{len(snapshot.living())} running"
    if ended := len(snapshot.processes) - len(snapshot.living()):
        counted += f", {ended} ended"
    lines += [*heading("processes", counted, style), *process_lines(snapshot, style)]
    lines += [*heading("host", "", style), *host_lines(snapshot.host, style)]
    if snapshot.segments:
        count = len(snapshot.segments)
        note = f"{count_text(count)} segment{'s' if count != 1 else ''}"
        lines += [*heading("shared memory", note, style), *segment_lines(snapshot, style)]
    if snapshot.flows:
        lines += heading("flows", "tensors from process to process", style)
        lines += flow_lines(snapshot, style)
    if with_stacks and (stacks := stack_lines(snapshot, style)):
        lines += [*heading("stacks", "innermost call first", style), *stacks]
    return _joined([*lines, *_waits(snapshot, style), *_problems(snapshot, style)])


def diagnose_text(
    snapshot: Snapshot, *, style: TextStyle = PLAIN, is_part_told: bool = False
) -> str:
    """The findings in full, the exit status of a failed job, merged stacks, waits, problems.

    At the end, also where nothing was found, is the account of time: what the job is doing.

    Args:
        snapshot: The job.
        style: Of the terminal.
        is_part_told: Whether the reader was told above that this is only a part of a job.
    """
    lines = [*_title(snapshot, style, is_part_told=is_part_told), *_findings(snapshot, style)]
    lines += [*_resolved(snapshot, style), *_end(snapshot, style)]
    if merged := merged_stack_lines(snapshot, style):
        lines += [*heading("merged stacks", "main threads with equal stacks", style), *merged]
    lines += [*_waits(snapshot, style), *_problems(snapshot, style)]
    return _joined([*lines, *_account(snapshot, style)])


def doctor_text(checks: Sequence[Check], *, style: TextStyle = PLAIN) -> str:
    """One entry for each check: its state, the value, what it means here, the fix."""
    lines: list[str] = []
    for check in checks:
        state = style.paint(f"{check.state:<8}", _CHECK_EMPHASIS[check.state])
        first, *rest = style.wrap(f"{check.name:<18} {check.value}", " " * 9, " " * 28)
        lines += [state + first[8:], *rest]
        lines += style.wrap(check.meaning, " " * 28)
        if check.fix:
            lines += style.wrap(f"fix: {check.fix}", " " * 28, " " * 33)
    counts = Counter(check.state for check in checks)
    told = [
        f"{counts[state]} {state}{'s' if counts[state] > 1 else ''}"
        for state in ("problem", "warning", "note")
        if counts[state]
    ]
    return _joined([*lines, "", ", ".join(told) if told else "all checks passed"])


LISTED_ALIKE = 6
"""More equal processes of one parent than this are one row of a listing."""


def ps_text(jobs: Sequence[Job], *, style: TextStyle = PLAIN) -> str:
    """Every job as a tree: roles, states, memory, and whether torch and the hook are loaded."""
    if not jobs:
        return "No torch job and no process with the hook is running."
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
    return _joined(table(columns, [row for job in jobs for row in _listed(job)], style))


def _listed(job: Job) -> Iterator[list[str]]:
    """A row for each process; many equal ones in one row."""
    for _, equal in groupby(job.processes, key=_equality_key):
        alike = list(equal)
        shown = alike if len(alike) <= LISTED_ALIKE else alike[:1]
        for process in shown:
            more = len(alike) - 1 if len(shown) < len(alike) else 0
            yield [
                str(process.process.pid),
                str(job.root.process.pid),
                f"{process.role} and {more} more" if more else _role(process),
                state_word(process.state),
                bytes_text(process.rss_bytes),
                "yes" if process.has_torch else DASH,
                "yes" if process.has_hook else DASH,
                job_words(process.cmdline) or f"[{process.name}]",
            ]


def _equality_key(process: JobProcess) -> tuple[object, ...]:
    return process.parent_pid, process.role, process.cmdline, process.has_hook


def _role(process: JobProcess) -> str:
    return role_name(process.role, process.worker_id, process.rank)


def plan_text(plan: InjectionPlan, *, style: TextStyle = PLAIN) -> str:
    """An entry for each process: the method and what would be written, or why it is left out.

    More than `PLANNED_ALIKE` of which the same is said are one entry.
    """
    lines: list[str] = []
    alike: defaultdict[tuple[str, ...], list[PlannedInjection]] = defaultdict(list)
    for each in plan.processes:
        alike[_what_is_planned(each)].append(each)
    for group in alike.values():
        shown = group if len(group) <= PLANNED_ALIKE else group[:1]
        for each in shown:
            lines += _planned(each, style)
        if more := [str(each.process.pid) for each in group[len(shown) :]]:
            words = f"the same, under names of their own, for {len(more)} more: {', '.join(more)}"
            lines += style.wrap(words, " " * 9, " " * 11)
    if plan.injectable():
        lines += ["", style.paint("what the hook replaces in each", "strong")]
        lines += style.wrap(", ".join(_points(plan)), "  ")
        lines += ["", *style.wrap(_EFFECTS_OF_PLAN, "")]
    return "\n".join([*lines, "", _summary_of_plan(plan)])


def _what_is_planned(each: PlannedInjection) -> tuple[str, ...]:
    """What is said of a process of a plan, without its numbers."""
    pid = re.compile(rf"\b{each.process.pid}(?:-{each.process.start_ticks})?\b")
    said = (each.role, each.name, each.method, each.reason, each.fix, *each.writes)
    return tuple(pid.sub("PID", words) for words in said)


def _summary_of_plan(plan: InjectionPlan) -> str:
    """The numbers of processes with and without injection, one sentence."""
    count = len(plan.injectable())
    there = sum(each.method == ALREADY_THERE for each in plan.processes)
    words = f"The hook would be injected into {processes_text(count)}"
    if there:
        words += f"; {there} {'has' if there == 1 else 'have'} it already"
    if left_out := plan.left_out():
        words += f"; {len(left_out)} {'is' if len(left_out) == 1 else 'are'} left out"
    return words + "."


def _planned(each: PlannedInjection, style: TextStyle) -> list[str]:
    head = f"{each.process.pid:<8} {each.role if each.role != 'other' else each.name}"
    if each.would_be_injected:
        lines = [style.paint(f"{head}: inject, by {each.method}", "strong")]
        for words in each.writes:
            lines += style.wrap(f"- {words}", " " * 9, " " * 11)
        return lines
    if each.method == ALREADY_THERE:
        return [f"{head}: has the hook already"]
    lines = style.wrap(f"{head}: left out: {each.reason}", "", " " * 9)
    return lines + (style.wrap(f"fix: {each.fix}", " " * 9, " " * 14) if each.fix else [])


def _points(plan: InjectionPlan) -> list[str]:
    """The patch points, those of one module together."""
    by_module: dict[str, list[str]] = {}
    for point in plan.patches:
        module, _, name = point.partition(": ")
        by_module.setdefault(module, []).append(name)
    return [f"{module} ({', '.join(names)})" for module, names in by_module.items()]


def _title(snapshot: Snapshot, style: TextStyle, *, is_part_told: bool = False) -> list[str]:
    """Program, pid and time of the snapshot, versions, and the state of the hook."""
    shown_at = utc_text(snapshot.wall_s)[:19].replace("T", " ")
    parts = [f"{program_of(snapshot)}  {snapshot.root.pid}", f"{shown_at} UTC", *versions(snapshot)]
    parts.append(_hooks(snapshot))
    if not snapshot.living():
        parts.append("the job has ended")
    if lost := snapshot.lost:
        parts.append(f"events lost {count_text(lost)}")
    lines = pack(parts, style)
    if not is_part_told and (words := part_words(snapshot)):
        lines += style.wrap(words)
    return lines


def _hooks(snapshot: Snapshot) -> str:
    """In how many processes the hook is ready, or was before they ended."""
    living = snapshot.living()
    hooks = [each.hook for each in living or snapshot.processes if can_have_hook(each)]
    if not living:
        attached = sum(hook.python is not None or hook.events > 0 for hook in hooks)
        return f"hook was attached in {attached} of {len(hooks)}" if attached else "no hook"
    states = Counter(hook.state for hook in hooks)
    known = [("ready in", states["ready"]), ("pending in", states["pending"])]
    if parts := [f"{words} {count}" for words, count in known if count]:
        return f"hook {', '.join(parts)} of {len(hooks)}"
    return "no hook"


def _findings(snapshot: Snapshot, style: TextStyle) -> list[str]:
    """The findings that hold now, or that there are none."""
    findings = unresolved(snapshot)
    if not findings:
        first, *seen = no_findings_lines(snapshot)
        shown = [line for each in seen for line in style.wrap(f"- {each}", "  ", "    ")]
        return ["", *style.wrap(first), *shown]
    counts = Counter(finding.severity for finding in findings)
    counted = [f"{counts[s]} {s.word}" for s in sorted(Severity, reverse=True) if counts[s]]
    lines = heading("findings", ", ".join(counted), style)
    return [*lines, *finding_lines(findings, snapshot, style)[:-1]]


def finding_lines(findings: Sequence[Finding], snapshot: Snapshot, style: TextStyle) -> list[str]:
    """Every finding in full, in the given order, an empty line after each.

    A cause and a fix that several findings have in common appear with the first of them.
    """
    lines: list[str] = []
    firsts: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        first = firsts.setdefault((finding.cause, finding.advice), finding)
        lines += [*_finding(finding, first, snapshot, style), ""]
    return lines


def _finding(finding: Finding, first: Finding, snapshot: Snapshot, style: TextStyle) -> list[str]:
    """One finding; `first` is the one that shows its cause and fix, often itself."""
    word = style.paint(severity_word(finding.severity), SEVERITY_EMPHASIS[finding.severity])
    lines = [f"{word}  {finding.rule}  {subject_of(finding, snapshot)}"]
    lines += style.wrap(finding.summary, "  ")
    if finding.eta_s is not None:
        lines += labelled(FORECAST, seconds_text(finding.eta_s), style)
    above = f"{CAUSE} and {FIX}: as above, see {subject_of(first, snapshot)}"
    shown = ""
    for label, text in labelled_fields(finding, bullet=BULLET):
        if label in (CAUSE, FIX) and finding is not first:
            lines += style.wrap(above, "  ") if above else []
            above = ""
        else:
            lines += labelled(label if label != shown else "", text, style)
        shown = label
    return lines


def _resolved(snapshot: Snapshot, style: TextStyle) -> list[str]:
    """The findings that no longer hold, a line each."""
    resolved = [finding for finding in snapshot.findings if finding.resolved_s is not None]
    if not resolved:
        return []
    lines = heading("resolved", "findings that no longer hold", style)
    for finding in resolved:
        words = f"{finding.severity.word}  {finding.rule}  {finding.summary}"
        lines += style.wrap(words, "  ", "      ")
    return lines


ENDS_SHOWN = 8


def _end(snapshot: Snapshot, style: TextStyle) -> list[str]:
    """The exit status of the processes of a failed job, and its last exceptions."""
    failed = failed_processes(snapshot)
    if not failed:
        return []
    lines = heading("ended", "the job has failed", style)
    for process in failed[:ENDS_SHOWN]:
        status = process.ended.words if process.ended is not None else ""
        lines += style.wrap(f"{full_name(process)} ended: {status}", "  ", "      ")
    if len(failed) > ENDS_SHOWN:
        lines.append(f"  and {len(failed) - ENDS_SHOWN} more")
    for entry, words, place in last_exceptions(snapshot):
        name = f"{full_name_of(entry.process, snapshot)}: " if entry.process else ""
        at = f"  at {place}" if place else ""
        lines += style.wrap(f"{name}{words}{at}", "  ", "      ")
    return lines


WIDE_COLUMNS = 110
"""From this width on, the activity of a process is a column and not a line below its row."""


def process_lines(snapshot: Snapshot, style: TextStyle) -> list[str]:
    """The tree, parents before children: a row for each process, and its activity."""
    is_wide = style.width >= WIDE_COLUMNS
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
    rows = process_rows(snapshot, has_private=has_private, has_map_limit=is_wide)
    if is_wide:
        columns.append(Column("DOING", is_flexible=True, floor=20))
        rows = [
            [*row, process.doing] for row, process in zip(rows, snapshot.processes, strict=True)
        ]
        return table(columns, rows, style)
    titles, *lines = table(columns, rows, style)
    out = [titles]
    for line, process in zip(lines, snapshot.processes, strict=True):
        out.append(line)
        if process.doing:
            out += style.wrap(process.doing, "  " * process.depth + "      ")
    return out


def process_rows(
    snapshot: Snapshot, *, indent: str = "  ", has_private: bool = True, has_map_limit: bool = True
) -> list[list[str]]:
    """Pid and label, state, cpu, memory, shared memory, descriptors, maps, threads, hook.

    Args:
        snapshot: The job.
        indent: Before the pid, for each level of the tree.
        has_private: Show private memory, else resident memory.
        has_map_limit: Show the limit of mappings after their number.
    """
    waits: Mapping[ProcessId, list[WaitEdge]] = defaultdict(list)
    for edge in snapshot.waits.edges:
        waits[edge.waiter].append(edge)
    rows = []
    for process in snapshot.processes:
        sample = process.sample
        fds, maps = sample.fds, sample.maps
        rss_bytes = sample.memory.rss_bytes if sample.memory else None
        threads = sample.thread_count if sample.thread_count is not None else len(process.threads)
        map_limit = maps.limit if maps and has_map_limit else None
        rows.append(
            [
                f"{indent * process.depth}{process.pid} {process.label}",
                process_state(process, waits[process.process]),
                percent_text(process.cpu_percent),
                bytes_text(process.private_bytes if has_private else rss_bytes),
                bytes_text(process.shm_bytes),
                _used_of(fds.used, fds.soft_limit) if fds else DASH,
                _used_of(maps.used, map_limit) if maps else DASH,
                count_text(threads or None),
                process.hook.state,
            ]
        )
    return rows


def _used_of(used: int | None, limit: int | None) -> str:
    return count_text(used) + (f"/{count_text(limit)}" if limit is not None else "")


def host_lines(host: HostSample, style: TextStyle) -> list[str]:
    """Name and kernel of the host, and the use of cpus, memory, /dev/shm and the cgroup."""
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
    return pack(parts, style)


def segment_lines(snapshot: Snapshot, style: TextStyle) -> list[str]:
    """A row for the segments that one process created and the same processes map."""
    columns = [
        Column("CREATOR", is_flexible=True),
        Column("KIND"),
        Column("COUNT", is_number=True),
        Column("SIZE", is_number=True),
        Column("USED", is_number=True),
        Column("OLDEST", is_number=True),
        Column("MAPPED BY", is_flexible=True, floor=16),
    ]
    return table(columns, segment_rows(snapshot), style)


def segment_rows(snapshot: Snapshot) -> list[list[str]]:
    """Creator, kind, count, size, used bytes, age of the oldest, mappers; the largest first."""
    names = unique_names(snapshot)
    groups: dict[tuple[object, ...], list[Segment]] = defaultdict(list)
    for segment in snapshot.segments:
        in_transit = () if segment.mappers else segment.holders
        key = (segment.creator_pid, segment.kind, segment.is_linked, segment.mappers, in_transit)
        groups[key].append(segment)
    ranked = sorted(groups.values(), key=lambda group: -(_size_bytes(group) or 0))
    return [
        [
            _creator(group[0], snapshot),
            group[0].kind + (" named" if group[0].is_linked and group[0].kind == "torch" else ""),
            count_text(len(group)),
            bytes_text(_size_bytes(group)),
            bytes_text(_sum(segment.allocated_bytes for segment in group)),
            seconds_text(_oldest_s(group, snapshot.wall_s)),
            _mappers(group[0], names),
        ]
        for group in ranked
    ]


def _creator(segment: Segment, snapshot: Snapshot) -> str:
    if segment.creator is not None:
        return full_name_of(segment.creator, snapshot)
    return f"pid {segment.creator_pid}" if segment.creator_pid is not None else "unknown"


def _mappers(segment: Segment, names: Mapping[ProcessId, str]) -> str:
    """The processes that map it; a segment in transit is open in its sender and mapped nowhere."""
    if segment.mappers or not segment.holders:
        return joined_names(segment.mappers, names) or "none"
    return f"in transit, open in {joined_names(segment.holders, names)}"


def _oldest_s(group: Sequence[Segment], wall_s: float) -> float | None:
    """The age of the oldest."""
    ages = [segment.age_s(wall_s) for segment in group]
    return max((age for age in ages if age is not None), default=None)


def _size_bytes(group: Sequence[Segment]) -> int | None:
    return _sum(segment.size_bytes for segment in group)


def _sum(values: Iterable[int | None]) -> int | None:
    """The sum, or `None` if any value is unknown: a partial sum would look like the whole."""
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def flow_lines(snapshot: Snapshot, style: TextStyle) -> list[str]:
    """A row for each pair of sender and receiver, the most bytes first."""
    columns = [
        Column("SENDER", is_flexible=True),
        Column("RECEIVER", is_flexible=True),
        Column("TENSORS", is_number=True),
        Column("BYTES", is_number=True),
        Column("COPIED", is_number=True),
        Column("P50", is_number=True),
        Column("P99", is_number=True),
    ]
    return table(columns, flow_rows(snapshot), style)


def flow_rows(snapshot: Snapshot) -> list[list[str]]:
    """Sender, receiver, tensors, bytes, copied share, median and 99th percentile of latency."""

    def row(flow: Flow) -> list[str]:
        copied = f"{percent_text(100 * flow.copied_bytes / flow.bytes)}%" if flow.bytes else DASH
        return [
            full_name_of(flow.sender, snapshot),
            full_name_of(flow.receiver, snapshot),
            count_text(flow.tensors),
            bytes_text(flow.bytes),
            copied,
            seconds_text(flow.latency_p50_s),
            seconds_text(flow.latency_p99_s),
        ]

    return [row(flow) for flow in sorted(snapshot.flows, key=lambda flow: -flow.bytes)]


_MOVING = ("progress", "ordinary")
MOVING_SHOWN = 4
"""Chains shown that make progress."""
WAITERS_SHOWN = 3
"""Different waits shown at the start of chains that continue alike."""
SHORT_S = 1.0
"""A shorter time without cpu use is not shown: a counter of cpu time has steps of 10 ms, and other
threads may have used some."""


def _waits(snapshot: Snapshot, style: TextStyle) -> list[str]:
    lines = wait_lines(snapshot, style)
    return [*heading("waits", "", style), *lines] if lines else []


def wait_lines(snapshot: Snapshot, style: TextStyle) -> list[str]:
    """Wait chains, from the waiting process to the last one; blocked ones first."""
    chains = [each for each in snapshot.waits.chains if not is_passing(each, snapshot)]
    blocked = [chain for chain in chains if chain.verdict not in _MOVING]
    moving = [chain for chain in chains if chain.verdict in _MOVING]
    moving_groups = _equal_chains(moving)
    lines: list[str] = []
    for group in (*_equal_chains(blocked), *moving_groups[:MOVING_SHOWN]):
        lines += [*_chain_lines(group, snapshot, style), ""]
    more = len(moving_groups) - MOVING_SHOWN
    if more > 0:
        lines += [f"  and {more} more that make progress", ""]
    return lines[:-1]


def _equal_chains(chains: Iterable[WaitChain]) -> list[list[WaitChain]]:
    """Chains that differ only in their first link, grouped."""
    groups: dict[object, list[WaitChain]] = {}
    for chain in chains:
        tail = tuple((link.process, link.words) for link in chain.links[1:])
        alone = chain if not tail else None
        groups.setdefault((chain.verdict, tail, alone), []).append(chain)
    return list(groups.values())


def _chain_lines(group: Sequence[WaitChain], snapshot: Snapshot, style: TextStyle) -> list[str]:
    """The first links of equal chains, their common links, and the verdict."""
    chain = group[0]
    lines = _first_links(group, snapshot, style)
    for depth, link in enumerate(chain.links[1:]):
        arrow = "   " * depth + "<- "
        lines += style.wrap(_link_words(link, snapshot), f"  {arrow}", " " * (len(arrow) + 2))
    verdict = chain.verdict.replace("-", " ")
    conclusion = f": {chain.conclusion}" if chain.conclusion else ""
    first, *rest = style.wrap(f"{verdict}{conclusion}", "  ", "    ")
    emphasis: Emphasis = "bad" if chain.verdict in ("cycle", "dead-end") else "plain"
    return [*lines, first.replace(verdict, style.paint(verdict, emphasis), 1), *rest]


def _first_links(group: Sequence[WaitChain], snapshot: Snapshot, style: TextStyle) -> list[str]:
    """The first links of equal chains; processes with the same wait are named in one line."""
    by_words: dict[str, list[WaitLink]] = {}
    for chain in group:
        if chain.links:
            by_words.setdefault(chain.links[0].words, []).append(chain.links[0])
    lines: list[str] = []
    for link, *others in list(by_words.values())[:WAITERS_SHOWN]:
        lines += style.wrap(_link_words(link, snapshot), "  ", "  ")
        if others:
            names = ", ".join(other.name for other in others)
            lines += style.wrap(f"the same: {names}", "    ", "    ")
    more = sum(map(len, list(by_words.values())[WAITERS_SHOWN:]))
    if more:
        lines += style.wrap(f"and {more} more wait{'s' if more == 1 else ''}", "  ", "    ")
    return lines


def _link_words(link: WaitLink, snapshot: Snapshot) -> str:
    since = f"  for {lasting_text(link.since_s, snapshot)}" if link.since_s is not None else ""
    return f"{link.name} {link.words}{since}"


class SameStack(Struct, frozen=True):
    """Threads of one or more processes with equal stacks."""

    frames: tuple[Frame, ...]
    """Innermost first, without the frames that a fork copied from the parent."""
    threads: tuple[tuple[Process, Thread], ...]


def equal_stacks(snapshot: Snapshot) -> tuple[SameStack, ...]:
    """Threads of all living processes by equal stacks: main threads first, then the most common."""
    groups: dict[tuple[tuple[str, str, int], ...], list[tuple[Process, Thread]]]
    groups = defaultdict(list)
    for process in snapshot.living():
        for thread in process.threads:
            if thread.stack:
                key = tuple(frame[:3] for frame in own_frames(thread.shown_stack))
                groups[key].append((process, thread))
    same = [SameStack(tuple(own_frames(t[0][1].shown_stack)), tuple(t)) for t in groups.values()]
    return tuple(sorted(same, key=_stack_order))


def stack_lines(snapshot: Snapshot, style: TextStyle) -> list[str]:
    """Every distinct stack once, below the threads that have it."""
    lines: list[str] = []
    for same in equal_stacks(snapshot):
        lines += style.wrap(_stack_owners(same, snapshot), "", "    ")
        for frame in same.frames:
            lines += frame_lines(frame, style)
        lines.append("")
    return lines[:-1]


def _stack_order(same: SameStack) -> tuple[bool, int]:
    """Main threads (tid equals pid) first, then the most common stacks."""
    has_main = any(thread.tid == process.pid for process, thread in same.threads)
    return (not has_main, -len(same.threads))


def _stack_owners(same: SameStack, snapshot: Snapshot) -> str:
    """`worker 0 (41826) MainThread, ...`; of a single thread also its state and its source."""
    owners = (
        full_name(process) + (f" {thread.name}" if thread.name else "")
        for process, thread in same.threads
    )
    names = names_text(owners, THREADS_SHOWN)
    if len(same.threads) > 1:
        return f"{len(same.threads)} threads: {names}"
    thread = same.threads[0][1]
    facts = [state_word(thread.state)]
    if thread.wchan:
        facts.append(thread.wchan)
    if (thread.still_s or 0.0) >= SHORT_S:
        facts.append(f"no cpu used for {lasting_text(thread.still_s, snapshot)}")
    if thread.stack_source:
        facts.append(f"by {thread.stack_source}")
    return f"{names}  ({', '.join(facts)})"


def frame_lines(frame: Frame, style: TextStyle) -> list[str]:
    """`  function        file:line`, and its local variables; a long path is cut at its start."""
    function = cut(frame.function, 32)
    left = f"    {function}{' ' * max(2, 34 - cell_width(function))}"
    place = place_words(frame.file, frame.line)
    first = left + cut_start(place, max(8, style.width - cell_width(left)))
    return [first, *(cut(f"      {name} = {value}", style.width) for name, value in frame.locals)]


def merged_stack_lines(snapshot: Snapshot, style: TextStyle) -> list[str]:
    """A sentence for each role: `workers: 62 of 64 wait for work in Queue.get; 3 and 17 in ...`."""
    lines: list[str] = []
    for name, merged in merged_stacks(snapshot.living()):
        lines += style.wrap(f"{name}: {merged.sentence}", "  ", "    ")
    return lines


def _problems(snapshot: Snapshot, style: TextStyle) -> list[str]:
    lines = problem_lines(snapshot, style)
    return [*heading("could not be read", "", style), *lines] if lines else []


def _account(snapshot: Snapshot, style: TextStyle) -> list[str]:
    return [*heading(account_title(snapshot), "", style), *account_lines(snapshot, style)]


def account_title(snapshot: Snapshot) -> str:
    """The heading of the account of time."""
    return "what the job is doing" if snapshot.living() else "what the job did before it ended"


def account_lines(snapshot: Snapshot, style: TextStyle) -> list[str]:
    """What each process did with its time, the progress, and how sure that is."""
    rows = account_rows(snapshot)
    if not rows:
        return style.wrap(NO_ACCOUNT, "  ", "  ")
    lines: list[str] = []
    for row in rows:
        lines += style.wrap(f"{row.name}: {row.recent}", "  ", "      ")
        if row.whole:
            lines += style.wrap(f"the whole time: {row.whole}", "      ", "      ")
    lines += style.wrap(progress_sentence(snapshot, unique_names(snapshot)), "  ", "  ")
    return [*lines, *style.wrap(certainty_words(snapshot), "  ", "  ")]


def problem_lines(snapshot: Snapshot, style: TextStyle) -> list[str]:
    """What could not be read, each reason once with the processes that have it."""
    affected: dict[str, list[ProcessId]] = defaultdict(list)
    for problem in problems_of(snapshot):
        affected.setdefault(problem, [])
    for process in snapshot.processes:
        for problem in (*process.sample.problems, *process.problems):
            if process.process not in affected[problem]:
                affected[problem].append(process.process)
        if process.ended is None and (words := _without_hook(process)):
            affected[words].append(process.process)
    names = unique_names(snapshot)
    lines: list[str] = []
    for problem, processes in affected.items():
        where = f"  ({joined_names(processes, names)})" if processes else ""
        lines += style.wrap(problem + where, "  ", "    ")
    return lines


def _without_hook(process: Process) -> str:
    """Why a process has no hook that answers, where there is more to say than that."""
    hook = process.hook
    if hook.state == "pending":
        return f"hook pending: {hook.reason}"
    if hook.state != "absent" or hook.reason in ("", NO_HOOK):
        return ""
    is_usual = process.role in LEFT_ALONE or not process.sample.is_python
    return "" if is_usual else f"no hook: {hook.reason}"


def heading(title: str, note: str, style: TextStyle) -> list[str]:
    """An empty line and the name of a section."""
    return ["", style.paint(title.upper(), "strong") + (f"  {note}" if note else "")]


LABEL_WIDTH = 9
BULLET = "- "


def labelled(label: str, text: str, style: TextStyle, width: int = LABEL_WIDTH) -> list[str]:
    """A label, and a text that is wrapped to the right of it; nothing without a text."""
    hanging = width + 3 + (len(BULLET) if text.startswith(BULLET) else 0)
    return style.wrap(text, f"  {label:<{width}} ", " " * hanging) if text else []


def pack(parts: Sequence[str], style: TextStyle) -> list[str]:
    """Parts side by side, as many to a line as fit; a part is broken only if it must be."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + 3 + len(part) <= style.width:
            lines[-1] += f"   {part}"
        else:
            lines += style.wrap(part)
    return lines


def versions(snapshot: Snapshot) -> list[str]:
    """Python and torch version, start method and sharing strategy of the root process."""
    root = snapshot.get(snapshot.root)
    if root is None:
        return []
    python, torch = root.hook.python or root.sample.python_version, root.hook.torch
    return [
        *([f"python {python}"] if python else []),
        *([f"torch {torch}"] if torch else []),
        *(method for method in (root.start_method, root.sharing_strategy) if method),
    ]


def _joined(lines: Sequence[str]) -> str:
    return "\n".join(lines)
