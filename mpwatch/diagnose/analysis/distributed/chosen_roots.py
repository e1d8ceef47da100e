"""A collective for which each rank computes which rank sends or receives."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from mpwatch.describe.frames import frame_words
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.source_code import mark_words, marks, source_of
from mpwatch.diagnose.analysis.stack_patterns import current_collective, main_thread, user_frame
from mpwatch.model.snapshot import Process

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
