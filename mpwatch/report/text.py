"""Reports as plain text for a terminal, a pipe or a bug report.

Pure: values and a `Paper` in, one string out, without a newline at its end. Everything is readable
at 80 columns; colour only repeats what a word says already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from mpwatch.collect.job.jobs import Job, JobProcess
from mpwatch.model.doctor_check import Check, CheckState
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Snapshot
from mpwatch.model.units import DASH, bytes_text, count_text
from mpwatch.report.job_end import ended_badly, last_words
from mpwatch.report.json import utc_text
from mpwatch.report.stack_summary import crowd_lines, stack_lines
from mpwatch.report.table import Column, Emphasis, Paper, table
from mpwatch.report.text_sections import (
    STATE_WORDS,
    finding_lines,
    flow_lines,
    heading,
    host_lines,
    pack,
    problem_lines,
    process_lines,
    program_of,
    segment_lines,
    wait_lines,
)

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
    for _, same in groupby(job.processes, key=_alike):
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


def _alike(process: JobProcess) -> tuple[object, ...]:
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
