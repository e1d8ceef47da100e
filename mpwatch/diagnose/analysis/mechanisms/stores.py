"""Waits for a key of a TCPStore of torch that no other process which uses the store can set."""

from __future__ import annotations

from mpwatch.diagnose.analysis.mechanisms.cases import (
    NAMED,
    Case,
    Mechanism,
    ended_ones,
    ended_words,
    waiting_for,
)
from mpwatch.diagnose.analysis.process_queries import all_called
from mpwatch.diagnose.analysis.waits.stores import KEY


def unset_key(case: Case) -> Mechanism | None:
    """All processes that use a store wait for a key of it."""
    if not case.members or not all(each.edge.what.startswith(KEY) for each in case.members):
        return None
    what = case.members[0].edge.what
    here = waiting_for(case, what)
    gone = ended_ones(case)
    ended = ""
    if gone:
        have = "have" if len(gone) > 1 else "has"
        ended = f" {all_called(gone, NAMED)} {have} ended, and may not have set its key."
    verb = "wait" if len(here) > 1 else "waits"
    return Mechanism(
        cause=(
            f"get() and wait() of a store return once another process has set the key. "
            f"{all_called(here)} {verb} for one, and no other living process uses this store: a "
            f"key is set under another name than it is read, the number of ranks is not what the "
            f"program expects, or each waits for what another one sets after its own wait.{ended}"
        ),
        advice=(
            "Compare the names of keys in set() and get() at the lines above, prefixes included, "
            "and set before you wait. Give the wait a timeout (wait(keys, timeout), the timeout of "
            "the store), which raises with the name of the key."
        ),
        evidence=ended_words(gone),
        headline=f"{all_called(here)} {verb} for keys of a store that no process sets.",
        is_certain=len(here) > 1,
    )
