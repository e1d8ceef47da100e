"""Exited children accumulate as zombies because their parent does not reap them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from mpwatch.describe import processes
from mpwatch.diagnose.analysis.exits.causes import cause_of_sending, handling_words, sent_by
from mpwatch.diagnose.analysis.exits.kinds import death_of, with_setting
from mpwatch.diagnose.analysis.exits.lost_blocks import lost_blocks
from mpwatch.diagnose.analysis.growth.forecast import growth
from mpwatch.diagnose.analysis.idle_time import is_stalled, quiet_s
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.pipes import kept_outputs
from mpwatch.diagnose.analysis.process_queries import all_called, called
from mpwatch.diagnose.analysis.source.lines import mark_words
from mpwatch.diagnose.analysis.stack_patterns import main_thread
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Ended
from mpwatch.model.snapshot import Process
from mpwatch.model.units import seconds_text

RULE = "zombie-processes"
MANY = 5
VERY_MANY = 50
LASTING_S = 10.0
LEAST_GROUP = 3
"""So many equal processes that the end of one may go unnoticed."""
ATTACHES = "shared-memory-tracker-unlink"
"""The rule about a block of shared memory without a name."""
TOGETHER_S = 5.0
"""Within this time equal processes are started."""
WORKS_S = 5.0


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for many zombies, and for children whose end nobody may have noticed.

    One or two zombies between an exit and its join are normal.
    """
    yield from _many(index)
    yield from _failed(index)
    yield from _left_the_others(index)


def _failed(index: Index) -> Iterator[Finding]:
    """Yield a finding for each parent that has not joined children that failed.

    Of a child that had ended before it was first read, the kernel keeps neither command nor stack:
    its role is not known, and no other rule is about it.
    """
    unjoined: defaultdict[ProcessId, list[tuple[Process, Ended]]] = defaultdict(list)
    for child in index.snapshot.processes:
        ended, parent = child.ended, child.parent
        if ended is None or parent is None or child.sample.state != "Z" or child.role != "other":
            continue
        is_old = index.snapshot.at_s - ended.at_s >= LASTING_S
        if is_old and death_of(ended) in ("failed", "killed", "crash"):
            unjoined[parent].append((child, ended))
    for identity, children in unjoined.items():
        parent_process = index.snapshot.get(identity)
        if parent_process is not None and not parent_process.is_gone:
            yield _unjoined(index, parent_process, children)


def _unjoined(index: Index, parent: Process, children: Sequence[tuple[Process, Ended]]) -> Finding:
    """The finding that children of a process have failed, and that it has not joined them."""
    ordered = sorted(children, key=lambda pair: (pair[1].at_s, pair[0].process.start_ticks))
    first, ended = ordered[0]
    has_stalled = is_stalled(parent, index) and not _sleeps(parent)
    names = all_called(child for child, _ in ordered)
    evidence = [f"{called(child)} ended: {end.words}" for child, end in ordered[:4]]
    handling, sends = handling_words(index, first, ended), sent_by(index, ended)
    evidence += [handling] * bool(handling)
    evidence += [f"{mark_words(sends)} sends that signal"] if sends is not None else []
    is_unhandled = bool(handling) or sends is not None
    evidence.append(
        f"{called(parent)} has not collected the exit status for at least "
        f"{seconds_text(index.snapshot.at_s - ended.at_s)}"
    )
    if has_stalled:
        quiet = index.lasting(quiet_s(parent, index) or 0.0)
        evidence.append(f"{called(parent)} has made no progress for {quiet}")
    effect_of = _cause_of(index, first)
    meaning = processes.signal_meaning(ended.signal) if ended.signal is not None else None
    why = f"{meaning.cause} " if meaning is not None else ""
    why = why if sends is None else f"{cause_of_sending(sends)}{why}"
    found = Finding(
        rule=RULE,
        severity=Severity.WARNING
        if (has_stalled or is_unhandled) and effect_of is None
        else Severity.INFO,
        process=first.process,
        subject="failed",
        effect_of=effect_of,
        summary=f"{called(parent)} has not joined {names}: {ended.words}"
        if not is_unhandled
        else f"{names}, started by {called(parent)}, did not handle a signal that ended it: "
        f"{ended.words}",
        evidence=tuple(evidence),
        cause=(
            f"{why}The exit status of a child stays with the kernel until its parent asks for it, "
            f"and {called(parent)} has not asked."
            + (
                " Possible: it waits for something that this child was to send or to do."
                if has_stalled
                else ""
            )
        ),
        advice=(
            f"{meaning.advice} Watch exitcode or the sentinel of the children in "
            f"{called(parent)}, which tells of such an end. Larger queues or longer waits of the "
            "others do not help."
        )
        if is_unhandled and meaning is not None
        else (
            "Read the standard error of the job for what the child printed last. Join children, or "
            "check exitcode at intervals, and end the job when one has failed."
        ),
    )
    return with_setting(index, found, first, ended)


def _cause_of(index: Index, child: Process) -> str | None:
    """The rule of which the finding says why a child has ended or is not joined, if any."""
    if any(each.process is child for each in lost_blocks(index)):
        return ATTACHES
    outputs = {each.child.process for each in kept_outputs(index) if each.child is not None}
    return "no-progress" if child.process in outputs else None


def _sleeps(process: Process) -> bool:
    """Whether a main thread sleeps by itself: nothing that a child was to do would wake it up."""
    main = main_thread(process)
    return main is not None and main.waits_on is not None and main.waits_on.kind == "timer"


def _left_the_others(index: Index) -> Iterator[Finding]:
    """Yield a finding for each parent of equal children of which a few ended well, unnoticed.

    The others, started with them, still work. Where most have ended, the work is nearly done.
    """
    groups: defaultdict[ProcessId, list[Process]] = defaultdict(list)
    for child in index.snapshot.processes:
        if child.role == "spawned" and child.parent is not None:
            groups[child.parent].append(child)
    for identity, children in groups.items():
        parent = index.snapshot.get(identity)
        if parent is None or parent.is_gone or len(children) < LEAST_GROUP:
            continue
        first = min(child.process.start_ticks for child in children)
        within = TOGETHER_S * index.snapshot.ticks_per_s
        together = [c for c in children if c.process.start_ticks - first <= within]
        left = [child for child in together if _ended_well(index, child)]
        others = [child for child in together if not child.is_gone and child.sample.state != "Z"]
        is_few = bool(left) and len(left) * LEAST_GROUP <= len(together)
        if is_few and len(others) + len(left) == len(together) and _any_works(index, others):
            yield _unnoticed(index, parent, left, others)


def _ended_well(index: Index, child: Process) -> bool:
    """Whether a child has ended normally for some time, and its parent has not read its status."""
    ended = child.ended
    if ended is None or child.sample.state != "Z" or death_of(ended) != "normal":
        return False
    return index.snapshot.at_s - ended.at_s >= LASTING_S


def _any_works(index: Index, children: Sequence[Process]) -> bool:
    """Whether one of some processes has made progress within the last seconds."""
    times = (quiet_s(child, index) for child in children)
    return any(time is not None and time < WORKS_S for time in times)


def _unnoticed(
    index: Index, parent: Process, left: Sequence[Process], others: Sequence[Process]
) -> Finding:
    """Put into words that a child has ended with status 0 while others like it still work."""
    first = left[0]
    verb = "has" if len(left) == 1 else "have"
    go = "goes" if len(others) == 1 else "go"
    ended_s = min(index.snapshot.at_s - child.ended.at_s for child in left if child.ended)
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=first.process,
        subject="left the others",
        summary=(
            f"{all_called(left)} {verb} ended with exit code 0, while {all_called(others)}, "
            f"started at the same time, {go} on"
        ),
        evidence=(
            f"{called(parent)} has not collected the exit status for at least "
            f"{seconds_text(ended_s)}",
        ),
        cause=(
            "Nothing is wrong if its part of the work was done. A function that catches its own "
            "exceptions returns as well, and its process then ends with exit code 0: the "
            "exception is only in the log, if there."
        ),
        advice=(
            "If all of them should run as long as the job, look into the log of the one that "
            "ended, let its function raise what it catches, and check is_alive() and exitcode of "
            f"the children in {called(parent)}."
        ),
    )


def _many(index: Index) -> Iterator[Finding]:
    """Yield one finding when `MANY` zombies have existed for `LASTING_S`."""
    series = index.history.of_host("zombies")
    if not series or series[-1].value < MANY:
        return
    recent = [point.value for point in series if point.at_s >= series[-1].at_s - LASTING_S]
    if series[-1].at_s - series[0].at_s < LASTING_S or min(recent) < MANY:
        return
    count = int(series[-1].value)
    parents = Counter(
        p.sample.parent_pid for p in index.snapshot.processes if p.sample.state == "Z"
    ).most_common(1)
    parent = next((p for p in index.snapshot.processes if parents and p.pid == parents[0][0]), None)
    name = "a process" if parent is None else called(parent)
    rising = growth(series)
    evidence = [f"{count} zombies now; {MANY} or more for {seconds_text(LASTING_S)}"]
    if rising is not None:
        evidence.append(f"{rising.gained:.0f} more within {seconds_text(rising.span_s)}")
    cgroup = index.snapshot.host.cgroup
    if cgroup is not None and cgroup.pids_limit and cgroup.pids_current:
        evidence.append(f"{cgroup.pids_current} of {cgroup.pids_limit} pids in use")
    yield Finding(
        rule=RULE,
        severity=Severity.WARNING if rising is not None or count >= VERY_MANY else Severity.INFO,
        process=None if parent is None else parent.process,
        summary=f"{name} has not reaped {count} exited child processes",
        evidence=tuple(evidence),
        cause=(
            "A child that has exited stays as a zombie until its parent reads the exit code, by "
            "join(), active_children(), or starting another process. A blocked main process never "
            "does. In a container, process 1 has to reap orphans, which many programs that are "
            "started there do not do."
        ),
        advice=(
            "Join each process that was started (a with-statement, or call active_children() at "
            "intervals); in a container, run an init (docker run --init). Zombies use pids, but "
            "hardly any memory."
        ),
    )
