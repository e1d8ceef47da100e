"""A process that starts one program after the other and spends its time waiting for them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from mpwatch.describe.frames import frame_words, own_frames, program_frames
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.process_queries import (
    SERVICE_ROLES,
    WORK_ROLES,
    all_called,
    called,
)
from mpwatch.diagnose.analysis.source.lines import source_of
from mpwatch.diagnose.analysis.source.loops import loop_around
from mpwatch.diagnose.analysis.stack_patterns import calls, main_thread
from mpwatch.diagnose.analysis.throughput.shares import (
    doing_words,
    main_account,
    shares_apart,
)
from mpwatch.model.account import LAST_MINUTE_S, Activity
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import VFORKED, Frame
from mpwatch.model.snapshot import Process
from mpwatch.model.source_code import Statement

RULE = "program-per-round"
IS_OF_SHARES = True
WAITS_SHARE = 0.4
"""A main thread waits for programs this part of its time, at least."""
PROGRAMS = 8
"""So many of one name were seen to end in the last minute, at least: more come and go between two
readings."""
SHORT_S = 3.0
"""A program that runs for longer does work of its own."""
SHOWN = 3
_SYSTEM = re.compile(r"\bos\.(?:system|popen|spawn\w+|wait\w*)\(")
"""In a statement that waits for a program without a frame of the standard library."""


class _Programs(Struct, frozen=True):
    """The programs of one name that a process started, and that ended in the last minute."""

    name: str
    count: int
    longest_s: float


class _Waits(Struct, frozen=True):
    """A process that waits for programs at a line in a loop."""

    process: Process
    programs: _Programs
    frame: Frame
    """Where the program waits."""
    loop: tuple[Frame, Statement]
    share: float
    """Of the time of its main thread, 0 to 1."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each loop that starts a short program in its rounds and waits for it."""
    found: defaultdict[tuple[str, str], list[_Waits]] = defaultdict(list)
    for process in index.snapshot.living():
        programs = _programs(index).get(process.process)
        if programs is None or process.role in (*SERVICE_ROLES, "launcher"):
            continue
        waits = _waits(index, process, programs)
        if waits is not None:
            found[frame_words(waits.frame), programs.name].append(waits)
    for waiting in found.values():
        yield _finding(index, waiting)


@derived
def _programs(index: Index) -> Mapping[ProcessId, _Programs]:
    """The short programs that each process has started one after the other lately."""
    snapshot = index.snapshot
    lived: defaultdict[tuple[ProcessId, str], list[float]] = defaultdict(list)
    for each in snapshot.processes:
        parent, ended = each.original_parent or each.parent, each.ended
        if parent is None or ended is None or each.role in (*WORK_ROLES, *SERVICE_ROLES):
            continue
        born_s = each.sample.born_wall_s
        if born_s is None or snapshot.at_s - ended.at_s > LAST_MINUTE_S:
            continue
        lived[parent, each.sample.name].append(
            ended.at_s - snapshot.at_s + snapshot.wall_s - born_s
        )
    found: dict[ProcessId, _Programs] = {}
    for (parent, name), times in lived.items():
        if len(times) >= PROGRAMS and max(times) <= SHORT_S:
            known = found.get(parent)
            if known is None or known.count < len(times):
                found[parent] = _Programs(name, len(times), max(times))
    return found


def _waits(index: Index, process: Process, programs: _Programs) -> _Waits | None:
    """Where a main thread waits for programs, if that takes much of its time."""
    thread, account = main_thread(process), main_account(index, process.process)
    frames = program_frames(thread.stack) if thread is not None else []
    loop = loop_around(index, frames)
    if thread is None or account is None or not frames or loop is None:
        return None
    line = source_of(index, frames[0])
    is_in_system = line is not None and _SYSTEM.search(line.statement.text) is not None
    if not (calls(own_frames(thread.stack), "subprocess.py:") or is_in_system):
        return None
    place = frame_words(frames[0])
    has_workers = any(
        each.parent == process.process and each.role in WORK_ROLES
        for each in index.snapshot.living()
    )
    share = sum(
        each.share
        for each in shares_apart(account)
        if _is_for_program(each.activity, place, not has_workers)
    )
    if share < WAITS_SHARE:
        return None
    return _Waits(process, programs, frames[0], loop, share)


def _is_for_program(activity: Activity, place: str, are_pipes: bool) -> bool:
    """Whether a wait is for the start, the output or the exit of a program.

    Args:
        activity: What the thread does.
        place: The line at which it waits for programs.
        are_pipes: Whether its pipes are those of programs, as it has no worker.
    """
    if activity.kind != "waiting":
        return False
    if activity.target == "child" or activity.what == VFORKED:
        return True
    return activity.target == "pipe" and (are_pipes or activity.place == place)


def _finding(index: Index, waiting: Sequence[_Waits]) -> Finding:
    first = waiting[0]
    processes = [each.process for each in waiting]
    names = all_called(processes, SHOWN)
    verb, starts = ("waits", "it starts") if len(waiting) == 1 else ("wait", "they start")
    share = sum(each.share for each in waiting) / len(waiting)
    frame, header = first.loop
    loop = f"`{header.text}` ({frame.file.rpartition('/')[2]}:{header.line} {frame.function})"
    place, name = frame_words(first.frame), first.programs.name
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        is_doubtful=True,
        costs=share,
        process=first.process.process,
        others=tuple(each.process for each in processes[1:]),
        subject=place,
        summary=(
            f"{names} {verb} {share:.0%} of the time for {name}, which {starts} anew again and "
            f"again at {place}, in the rounds of {loop}"
        ),
        evidence=(
            *(
                f"{called(each.process)}: {words}"
                for each in waiting[:SHOWN]
                if (words := doing_words(index, each.process)) is not None
            ),
            *(
                f"{called(e.process)} has started at least {e.programs.count} of {name} in the "
                f"last minute, none of which ran for longer than {e.programs.longest_s:.1f} s; "
                "those that come and go between two readings are not counted"
                for e in waiting[:SHOWN]
            ),
        ),
        cause=(
            "Each of these programs is a process of its own: before it does its work, it is "
            "forked, its file and libraries are loaded, and it sets itself up (an interpreter, a "
            "driver, its options). That takes milliseconds to a second, and is paid again for each "
            "of them, while the process itself waits."
        ),
        advice=(
            f"Start {name} once for many rounds: give it many files or arguments at a time, or "
            "keep one running and talk to it through its pipes (Popen with stdin and stdout). Or "
            "use a library in the process in place of the program. Ask less often, and keep the "
            "answer, where it hardly changes. Where each round needs a program of its own, let "
            "several run beside each other (ThreadPoolExecutor: its threads only wait). Nothing is "
            f"wrong if what {name} itself computes takes that time."
        ),
    )
