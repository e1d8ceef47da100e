"""Why ranks that are all in a collective, or all in send, do not meet there.

They may have called it for different groups, or compute by themselves which rank sends.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from mpwatch.describe.frames import frame_words
from mpwatch.diagnose.analysis.distributed.flight_recorder import unfinished
from mpwatch.diagnose.analysis.distributed.ranks import OTHERS, groups_apart
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.mechanisms.cases import NAMED, Case, Mechanism, names_of
from mpwatch.diagnose.analysis.process_queries import all_called, called
from mpwatch.diagnose.analysis.source.lines import mark_words, marks, source_of
from mpwatch.diagnose.analysis.source.loops import loop_around
from mpwatch.diagnose.analysis.stack_patterns import current_collective, main_thread, user_frame
from mpwatch.model.snapshot import Process

_TAKES_A_GROUP = re.compile(r"\b(?:\w+_)?group\b", re.IGNORECASE)
"""In the statement of a call: a process group is passed to it."""


def all_send(case: Case) -> Mechanism | None:
    """Every rank of a cycle is in a send to another one."""
    if not case.waiters or not all(each.edge.what == f"{OTHERS}send" for each in case.waiters):
        return None
    return Mechanism(
        cause=(
            "Each of these ranks is in send, and none is in recv. A send of more than fits into "
            "the buffers on the way returns only when its receiver has called recv."
        ),
        advice=(
            "Let every second rank receive before it sends, or start both with isend and irecv "
            "(batch_isend_irecv) and wait for them afterwards."
        ),
        headline="all these ranks are in send, and none of them receives.",
    )


def all_at_one_call(case: Case) -> Mechanism | None:
    """Every rank of a cycle has called the same collective at the same line, with some group."""
    what = case.waiters[0].edge.what if case.waiters else ""
    frames = {user_frame(each.thread.stack) for each in case.waiters if each.thread is not None}
    frame = frames.pop() if len(frames) == 1 else None
    if frame is None or not what.startswith(OTHERS):
        return None
    if len(case.waiters) < 2 or any(each.edge.what != what for each in case.waiters):
        return None
    processes = [each.process for each in case.waiters]
    records = [(each, record) for each in processes if (record := unfinished(each)) is not None]
    are_several = len({record.group for _, record in records}) > 1
    source = source_of(case.index, frame)
    is_passed = source is not None and _TAKES_A_GROUP.search(source.statement.text) is not None
    if not are_several and (not is_passed or len(records) == len(processes)):
        return None
    name, loop = what.removeprefix(OTHERS), loop_around(case.index, (frame,))
    ranks = [each for each in case.index.snapshot.living() if current_collective(each) == name]
    order = f" (`{loop[1].text}`, line {loop[1].line})" if loop is not None else ""
    different = "for different process groups"
    return Mechanism(
        cause=(
            f"{name} ends when all ranks of its process group have called it for that group. "
            f"{all_called(ranks, NAMED)} have called it at one line, "
            + (different if are_several else f"most likely {different}, which are passed to it")
            + f": they use their groups in a different order{order}, and each waits in one group "
            "for a rank that waits in another."
        ),
        advice=(
            "Use the groups in the same order on all ranks: go through a fixed list, not through a "
            "set or a list that is sorted by what a rank has computed. Or start the calls with "
            "async_op=True and wait for all of them afterwards."
        ),
        evidence=tuple(
            f"recorded by {called(each)}: {record.words}" for each, record in records[:NAMED]
        ),
        headline=(
            f"{len(ranks)} ranks are in {name} at {frame_words(frame)} and do not meet there: "
            f"{'' if are_several else 'most likely '}they have called it {different}."
        ),
    )


def at_different_groups(case: Case) -> Mechanism | None:
    """Every rank of a cycle is in a collective, at different lines and of different groups."""
    processes = [each.process for each in case.waiters]
    if len(processes) < 2 or not all(each.edge.what.startswith(OTHERS) for each in case.waiters):
        return None
    found = groups_apart(case.index, processes)
    if found is None:
        return None
    likely = "" if found.is_recorded else "most likely "
    return Mechanism(
        cause=found.cause,
        advice=found.advice,
        headline=(
            f"{names_of(case)} wait for each other in collectives of {likely}different process "
            "groups."
        ),
    )


_ROOT = re.compile(
    r"\b(?:src|dst|group_src|group_dst)=([\w.]+[\[(][^\]()]*[\])](?:\.\w+)*|\w+)(?=[,)])"
)
_COMPUTED = re.compile(r".*[\[(]|(?!rank$)[a-z]*(?:owner|plan)\w*", re.IGNORECASE)
"""What is looked up, called, or named as the result of a plan; a setting is the same on all."""
ONE_SIDED = ("send", "recv")
OTHER_ORDER = (
    "Equal sets of texts have another order in each process that was not forked from the other "
    "(the hashes of texts are random, PYTHONHASHSEED)"
)
SHOWS_ORDER = "PYTHONHASHSEED=0 for all ranks shows whether that is the reason."


def are_forks(ranks: Iterable[Process]) -> bool:
    """Whether all are forks of one process: texts have the same hashes in them."""
    return all(rank.sample.start_method == "fork" for rank in ranks)


def chosen_root(index: Index, ranks: Sequence[Process]) -> tuple[str, str] | None:
    """Cause and advice where each rank computes from which rank it is to receive, or to which send.

    The set that a part of the program goes through is named where it may be the reason, but not of
    ranks that are forks of one process: texts have the same hashes in all of them.
    """
    threads = [main_thread(rank) for rank in ranks]
    frames = {user_frame(thread.stack) for thread in threads if thread is not None}
    frame = frames.pop() if len(frames) == 1 else None
    line = source_of(index, frame) if frame is not None else None
    found = _ROOT.search(line.statement.text) if line is not None else None
    if found is None or frame is None or not _COMPUTED.match(found[1]):
        return None
    sets = marks(index, "set-order")
    because, advice = "", f"Log `{found[0]}` on every rank before that line and compare. "
    if sets and not are_forks(ranks):
        mark = sets[0]
        because = (
            f" That may come from a set: {mark_words(mark)} goes through {mark.about}. "
            f"{OTHER_ORDER}, and what is computed in that order, with ties or running sums, "
            "differs as well."
        )
        advice += f"Go through a fixed order there, sorted({mark.about}); {SHOWS_ORDER} "
    return (
        f"Each rank computes `{found[0]}` by itself at {frame_words(frame)}: where ranks come to "
        f"different results, each waits for data that none of them sends.{because}",
        f"{advice}Or let one rank compute it and broadcast it to the others (from rank 0) before "
        "the loop. A longer timeout or another backend does not help.",
    )


def same_collective(ranks: Sequence[Process]) -> bool:
    """Whether the main threads of two or more processes are in one and the same collective."""
    calls = {current_collective(rank) for rank in ranks}
    return len(ranks) > 1 and len(calls) == 1 and calls.isdisjoint((None, *ONE_SIDED))
