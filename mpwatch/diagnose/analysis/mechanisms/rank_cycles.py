"""Why ranks that are all in a collective, or all in send, do not meet there.

They may have called it for different groups, or compute by themselves which rank sends.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from mpwatch.describe.frames import frame_words
from mpwatch.diagnose.analysis.distributed.flight_recorder import unfinished
from mpwatch.diagnose.analysis.distributed.ranks import (
    OTHERS,
    PassedRoot,
    groups_apart,
    passed_root,
    passes_group,
)
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.mechanisms.cases import NAMED, Case, Mechanism, names_of
from mpwatch.diagnose.analysis.process_queries import all_called, called
from mpwatch.diagnose.analysis.source.lines import mark_words, marks, source_of
from mpwatch.diagnose.analysis.source.loops import loop_around
from mpwatch.diagnose.analysis.stack_patterns import current_collective, main_thread, user_frame
from mpwatch.diagnose.analysis.values import by_value, whole_numbers
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process


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
    is_passed = source is not None and passes_group(source.statement.text)
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


class ChosenRoot(Struct, frozen=True):
    """Why ranks do not agree on which of them sends, or to which they send."""

    cause: str
    advice: str
    evidence: str = ""
    """What each of them passes; empty where that was not read."""
    headline: str = ""
    """Where it was."""


def chosen_root(index: Index, ranks: Sequence[Process]) -> ChosenRoot | None:
    """Cause and advice where each rank computes from which rank it is to receive, or to which send.

    Where the values were read they have to differ. What may be the reason in the program is named,
    the set that a part of it goes through or a choice by hash(), but not of ranks that are forks of
    one process: texts have the same hashes in them.
    """
    found = _root_of(index, ranks)
    if found is None:
        return None
    root, frame = found
    values = whole_numbers(index, ranks, frame, root.name) if root.name else ()
    if values and len({each.number for each in values}) == 1:
        return None
    if not values and not _COMPUTED.match(root.value):
        return None
    because, mend = _why_another_root(index, ranks, is_read=bool(values))
    at = frame_words(frame)
    alike = (
        "Or let one rank compute it and broadcast it to the others (from rank 0) before the loop. "
        "A longer timeout or another backend does not help."
    )
    if not values:
        return ChosenRoot(
            f"Each rank computes `{root.text}` by itself at {at}: where ranks come to different "
            f"results, each waits for data that none of them sends.{because}",
            f"Log `{root.text}` on every rank before that line and compare. {mend}{alike}",
        )
    shown = f"{root.name} is {by_value(ranks, values)}"
    return ChosenRoot(
        f"The ranks pass different ranks as `{root.text}` at {at}: {shown}. All ranks of a group "
        "have to name the same one in such a call, which sends to the others or receives from "
        f"them; as they do not, each waits for what another one does not do.{because}",
        f"Let all ranks come to the same {root.name}. {mend}{alike}",
        shown,
        f"{len(ranks)} ranks are in {current_collective(ranks[0]) or 'one call'} at {at}, name "
        "different ranks in it, and do not meet",
    )


def _root_of(index: Index, ranks: Sequence[Process]) -> tuple[PassedRoot, Frame] | None:
    """The one rank that the call names in which all ranks are, and the line of the call.

    Ranks of different groups each have one of their own, and those in different rounds of a loop
    may name another one in each: neither is meant.
    """
    threads = [main_thread(rank) for rank in ranks]
    frames = {user_frame(thread.stack) for thread in threads if thread is not None}
    frame = frames.pop() if len(frames) == 1 else None
    line = source_of(index, frame) if frame is not None else None
    root = passed_root(line.statement.text) if line is not None else None
    if root is None or frame is None or line is None:
        return None
    records = [record for rank in ranks if (record := unfinished(rank)) is not None]
    if len({(each.group, each.number) for each in records}) > 1:
        return None
    if root.name and passes_group(line.statement.text) and len(records) < len(ranks):
        return None
    return root, frame


def _why_another_root(index: Index, ranks: Sequence[Process], *, is_read: bool) -> tuple[str, str]:
    """What in the program may give each rank another one, and what to do about it."""
    if are_forks(ranks):
        return "", ""
    comes = "Most likely that comes" if is_read else "That may come"
    for mark in marks(index, "text-hash")[:1]:
        return (
            f" {comes} from hash(): {mark_words(mark)} chooses by it, and the hash of "
            "a text is another number in each process that was not forked from the other "
            "(PYTHONHASHSEED).",
            f"Choose by what is the same on all ranks in place of hash({mark.about}): the position "
            "in a list that all have in the same order, or zlib.crc32() or hashlib of the text. "
            f"{SHOWS_ORDER} ",
        )
    for mark in marks(index, "set-order")[:1]:
        return (
            f" That may come from a set: {mark_words(mark)} goes through {mark.about}. "
            f"{OTHER_ORDER}, and what is computed in that order, with ties or running sums, "
            "differs as well.",
            f"Go through a fixed order there, sorted({mark.about}); {SHOWS_ORDER} ",
        )
    return "", ""


def same_collective(ranks: Sequence[Process]) -> bool:
    """Whether the main threads of two or more processes are in one and the same collective."""
    calls = {current_collective(rank) for rank in ranks}
    return len(ranks) > 1 and len(calls) == 1 and calls.isdisjoint((None, *ONE_SIDED))
