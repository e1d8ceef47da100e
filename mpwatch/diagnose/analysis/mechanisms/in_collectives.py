"""Ranks that are all in the same call of torch.distributed, and wait for each other there."""

from __future__ import annotations

import re

from mpwatch.describe.frames import frame_words
from mpwatch.diagnose.analysis.distributed.flight_recorder import unfinished
from mpwatch.diagnose.analysis.distributed.ranks import OTHERS
from mpwatch.diagnose.analysis.mechanisms.cases import NAMED, Case, Mechanism
from mpwatch.diagnose.analysis.process_queries import all_called, called
from mpwatch.diagnose.analysis.source_code import loop_around, source_of
from mpwatch.diagnose.analysis.stack_patterns import current_collective, user_frame

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
