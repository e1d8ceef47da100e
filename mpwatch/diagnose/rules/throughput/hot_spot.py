"""The function in which a job spends its time, where nothing is known to be wrong with the job.

It answers why a job is as slow as it is. It is shown only without any other finding
(`mpwatch.diagnose.consequences.HOT_SPOT`), and names no step of a training: a healthy training
spends its time there.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from mpwatch.describe.frames import frame_words, own_frames
from mpwatch.diagnose.analysis.distributed.ranks import ranks_of
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import SERVICE_ROLES, all_called, called
from mpwatch.diagnose.analysis.source.lines import line_at, source_of
from mpwatch.diagnose.analysis.stack_patterns import calls, main_thread
from mpwatch.diagnose.analysis.throughput.shares import (
    Place,
    callers,
    core_share,
    doing_words,
    idle_share,
    shares,
    waiting_share,
    with_a_core,
    work_place,
)
from mpwatch.diagnose.consequences import HOT_SPOT
from mpwatch.model.account import IMPORTS, Activity
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process
from mpwatch.model.source_code import SourceLine, Statement

RULE = HOT_SPOT
IS_OF_SHARES = True
SLOWS_DOWN = True
COMPUTES_SHARE = 0.5
"""Of the time in which a process did not wait for a free core."""
LEAST_TIME = 0.1
"""With less time that was not a wait for a core, a share of it means nothing."""
UNUSED_SHARE = 0.6
"""Processes that wait for this part of the time could do more."""
SHOWN = 3
LOOPS_SHOWN = 3
_TRAINS = re.compile(
    r"\.(?:backward|step|zero_grad|forward|unscale_)\(|\b(?:self\.)?(?:\w*model|\w*net|module|policy|"
    r"encoder|decoder|criterion|loss_fn|agent|actor|critic)\(|\bloss\b|\bF\.\w+\(|\bautograd\b"
)
"""In a statement of a training or inference step, as far as words show."""


class _HotSpot(Struct, frozen=True):
    """A function in which some processes do most of their computing."""

    processes: Sequence[Process]
    place: Place
    line: SourceLine
    share: float
    """The mean part of their time with a core that they compute, 0 to 1."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding about the function in which the process computes that sets the pace.

    That is main or the ranks where they compute most of their time, else those that compute most.
    """
    found = _computing(index)
    if not found:
        return
    pace = {each.process for each in (*ranks_of(index), *index.snapshot.living()[:1])}
    leading = [each for each in found if each[0].process in pace]
    groups: defaultdict[str, list[tuple[Process, float]]] = defaultdict(list)
    for process, share in leading or found:
        place = work_place(index, (process,), _computes)
        if place is not None and place.is_main:
            where, _, function = place.words.partition(" ")
            groups[f"{where.rpartition(':')[0]} {function}"].append((process, share))
    if not groups:
        return
    alike = max(groups.values(), key=lambda group: sum(share for _, share in group))
    processes = [process for process, _ in alike]
    place = work_place(index, processes, _computes)
    line = line_at(index, place.words) if place is not None else None
    if place is not None and line is not None and place.is_main and not _is_step(line):
        share = sum(share for _, share in alike) / len(alike)
        yield _finding(index, _HotSpot(processes, place, line, share))


def _computing(index: Index) -> list[tuple[Process, float]]:
    """The processes that compute most of their time, with that share of it."""
    found = []
    for process in index.snapshot.living():
        if process.role in SERVICE_ROLES or process.role == "launcher":
            continue
        computes = sum(each.share for each in shares(index, process) if _computes(each.activity))
        share = with_a_core(index, process, computes, LEAST_TIME)
        if share >= COMPUTES_SHARE:
            found.append((process, share))
    return found


def _computes(activity: Activity) -> bool:
    """Whether it is computing of the program, and no polling without pause, nor an import."""
    return activity.kind == "computing" and activity.what != IMPORTS


def _is_step(line: SourceLine) -> bool:
    """Whether a line is of a step of a training or of the forward pass of a model."""
    if line.function == "forward" and not _loops(line):
        return True
    return _TRAINS.search(line.statement.text) is not None


def _finding(index: Index, spot: _HotSpot) -> Finding:
    processes, place = spot.processes, spot.place
    names = all_called(processes, SHOWN)
    is_one = len(processes) == 1
    function = place.words.rpartition(" ")[2]
    called_by = callers(index, processes, spot.line)
    unused = _unused(index, processes)
    through = ", from ".join(map(frame_words, called_by[:SHOWN]))
    others = (*processes[1:2], *unused[:2])
    is_short = any(core_share(index, each) > 0 for each in processes)
    evidence = [
        *(
            f"{called(each)}: {words}"
            for each in (processes[0], *others)
            if (words := doing_words(index, each))
        ),
        f"{place.part:.0%} of {'its' if is_one else 'their'} computing whose line is known is in "
        f"{function}()",
    ]
    if through:
        evidence.append(f"{function}() was last called from {through}")
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        is_doubtful=True,
        process=processes[0].process,
        others=tuple(each.process for each in processes[1:]),
        summary=(
            f"{names} compute{'s' if is_one else ''} {spot.share:.0%} of the time"
            f"{' with a core' if is_short else ''}, most of it at {place.words}"
        ),
        evidence=tuple(evidence),
        cause=_cause(index, spot, called_by),
        advice=_advice(index, spot, unused),
    )


def _loops(line: SourceLine) -> list[Statement]:
    """Headers of the loops of its function around a line, innermost first."""
    return [each for each in reversed(line.within) if each.text.startswith(("for ", "while "))]


def _cause(index: Index, spot: _HotSpot, called_by: Sequence[Frame]) -> str:
    """How often the line runs, by the loops around it and around the calls that lead to it."""
    place = spot.place.words
    loops = [(each, spot.line.file) for each in _loops(spot.line)]
    for frame in called_by:
        line = source_of(index, frame)
        if line is not None:
            loops += [(each, frame.file) for each in _loops(line)]
    each_task = _each_task(index, spot.processes)
    if not loops:
        return (
            f"{place} is run{each_task or ' all the time'}: the pace of the job is that of this "
            "line, as far as it was seen."
        )
    words = [
        f"`{each.text}` ({file.rpartition('/')[2]}:{each.line})"
        for each, file in loops[:LOOPS_SHOWN]
    ]
    rounds = ", which is run in each round of ".join(words)
    return (
        f"{place} is run in each round of {rounds}{f', and that{each_task}' if each_task else ''}. "
        "The time is that of one round multiplied by the rounds of "
        f"{'this loop' if len(words) == 1 else 'all these loops'}"
        f"{' and the number of these' if each_task else ''}."
    )


_EACH: Mapping[str, str] = {
    "multiprocessing/pool.py:worker": " anew in each task of the pool",
    "concurrent/futures/process.py:_process_worker": " anew in each task of the executor",
    "concurrent/futures/thread.py:_worker": " anew in each task of the executor",
    "utils/data/_utils/fetch.py:fetch": " for each batch of the DataLoader",
}
"""What libraries call again and again, by a function of theirs on the stack."""


def _each_task(index: Index, processes: Sequence[Process]) -> str:
    """For what a library runs it each time; empty where none is seen to."""
    for process in processes:
        thread = main_thread(process)
        stack = own_frames(thread.stack) if thread is not None else ()
        for pattern, words in _EACH.items():
            if calls(stack, pattern):
                return words
    return ""


def _unused(index: Index, working: Sequence[Process]) -> list[Process]:
    """Processes that wait for work or items for most of the time."""
    busy = {each.process for each in working}
    return [
        each
        for each in index.snapshot.living()
        if each.process not in busy
        and each.role not in SERVICE_ROLES
        and idle_share(index, each) + waiting_share(index, each) >= UNUSED_SHARE
    ]


def _advice(index: Index, spot: _HotSpot, unused: Sequence[Process]) -> str:
    """What makes a function take less time, in general."""
    parts = [
        "Nothing is wrong if this is the work that the job is for.",
        "Otherwise do it less often: keep what does not change from round to round, and move it "
        "out of the loops that do not need it again; or do it for many elements at a time, with "
        "one call of numpy or torch in place of a loop in Python.",
    ]
    helpers = [each for each in unused if each.role in ("loader-worker", "pool-worker", "spawned")]
    if helpers and len(spot.processes) == 1:
        have = "has" if len(helpers) == 1 else "have"
        parts.append(
            f"{all_called(helpers, SHOWN)} {have} little to do: more of them would not help, but "
            "moving work into them would."
        )
    parts.append("py-spy record --pid or cProfile shows the share of each line.")
    return " ".join(parts)
