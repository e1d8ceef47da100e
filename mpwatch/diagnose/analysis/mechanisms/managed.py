"""Waits for what a manager of multiprocessing keeps, where no other client of it provides that."""

from __future__ import annotations

from collections.abc import Mapping

from mpwatch.diagnose.analysis.mechanisms.cases import (
    NAMED,
    Case,
    Mechanism,
    awaited,
    ended_ones,
    ended_words,
    waiting_for,
)
from mpwatch.diagnose.analysis.process_queries import all_called, called
from mpwatch.diagnose.analysis.waits.managed import (
    BARRIER,
    EVENT,
    ITEM,
    LOCK,
    MANAGED,
    ROOM,
    TASKS,
)


def managed(case: Case) -> Mechanism | None:
    """Processes that wait for what no other client of their manager provides."""
    waiting = [each for each in case.members if each.edge.what in MANAGED]
    if not waiting:
        return None
    what = waiting[0].edge.what
    here = waiting_for(case, what)
    gone = ended_ones(case)
    verb = "wait" if len(here) > 1 else "waits"
    missing, advice = _TEXTS[what]
    others = [each for each in case.members if each.process not in here]
    words = "; ".join(f"{called(each.process)} waits for {awaited(case, each)}" for each in others)
    ended = ""
    if gone:
        have = "have" if len(gone) > 1 else "has"
        lost = "held" if what == LOCK else "was to do"
        whose = "it" if len(gone) == 1 else "one of them"
        ended = f" {all_called(gone, NAMED)} {have} ended: what {whose} {lost} may be lost."
    return Mechanism(
        cause=(
            f"{all_called(here)} {verb} for {what}, in a call of a proxy, and no other client of "
            f"the manager is at work that could do that. {f'{words}. ' if words else ''}The "
            f"manager itself only waits in their place.{ended}"
        ),
        advice=advice,
        evidence=ended_words(gone),
        headline=f"{all_called(here)} {verb} for {what} that no process {missing}.",
    )


_COUNT = (
    "Count what is put and what is taken: every task needs exactly one answer, also where it fails "
    "or has no result. Use get(timeout=...) and check then whether the others are alive."
)
_SET = (
    "Set or notify it in a finally block, and wait with a timeout. A notify() before the wait is "
    "lost: wait for a state (wait_for)."
)
_TEXTS: Mapping[str, tuple[str, str]] = {
    ITEM: ("puts", _COUNT),
    ROOM: (
        "takes out",
        "Take items out of the queue until all that put into it have ended, or give it no maxsize.",
    ),
    LOCK: (
        "releases",
        "A lock of a manager stays locked when its holder is killed or ends without release(): "
        "take it in a with block, do not end such processes by os._exit() or kill(), and use "
        "acquire(timeout=...).",
    ),
    EVENT: ("sets or notifies", _SET),
    BARRIER: ("completes", "Give the barrier a timeout and exactly as many parties as come to it."),
    TASKS: (
        "completes",
        "Call task_done() once for each item that was taken, in a finally block.",
    ),
}
"""What no process does, and what to change."""
