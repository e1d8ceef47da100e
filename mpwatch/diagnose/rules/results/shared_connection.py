"""Processes read from one connection that they all have since a fork."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from mpwatch.describe.frames import at_frame
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import all_called, called
from mpwatch.diagnose.analysis.source.lines import mark_words
from mpwatch.diagnose.analysis.stack_patterns import user_frame
from mpwatch.diagnose.analysis.waits.shared_connections import (
    ALONE_S,
    SharedConnection,
    shared_connections,
)
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.snapshot import Process

RULE = "shared-connection"
NAMED = 4


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each connection that several processes read, or may read, by a fork.

    That two wait to read it is certain. Of a single one that waits it is only possible that
    another has read its answer, so that is information.
    """
    for shared in shared_connections(index):
        yield _finding(index, shared)


def _finding(index: Index, shared: SharedConnection) -> Finding:
    readers = [each.process for each in shared.readers]
    first, names = readers[0], all_called(readers)
    is_alone = len(readers) == 1
    if is_alone:
        summary = (
            f"{called(first)} waits to read from a connection that "
            f"{all_called(shared.others)} also {_have(len(shared.others))} since the fork: "
            f"{shared.words}"
        )
        cause = (
            f"Possible: {_FORKED} {called(first)} waits for an answer on it. If another process "
            "reads from it as well, that one may have taken the answer, or a part of it, and this "
            "wait does not end. If no other one does, the server has not answered yet."
        )
    else:
        summary = (
            f"{names} read from one and the same connection, inherited by fork: {shared.words}"
        )
        cause = (
            f"{_FORKED} What the server sends goes to whichever process reads first, whole or in "
            "part: one gets the answer to the request of another, and one may wait for ever for an "
            "answer that another has taken."
        )
    if shared.opened is not None:
        cause += f" Most likely it is opened by {mark_words(shared.opened)}."
    return Finding(
        rule=RULE,
        severity=_severity(shared),
        process=first.process,
        subject=shared.words,
        summary=summary,
        evidence=tuple(_evidence(index, shared)),
        cause=cause,
        advice=_advice(shared, first),
    )


def _have(count: int) -> str:
    return "has" if count == 1 else "have"


_FORKED = (
    "A fork copies the descriptor of a connection, and makes no new connection: the processes "
    "share one stream of bytes."
)


def _severity(shared: SharedConnection) -> Severity:
    if len(shared.readers) == 1:
        return Severity.INFO
    is_stuck = all(each.waited_s >= ALONE_S for each in shared.readers)
    return Severity.CRITICAL if is_stuck else Severity.WARNING


def _evidence(index: Index, shared: SharedConnection) -> Iterator[str]:
    holders = [*(each.process for each in shared.readers), *shared.others]
    yield (
        f"descriptor {shared.link.fd} is the same socket, {shared.link.inode}, in "
        f"{all_called(holders)}"
    )
    for reader in shared.readers[:NAMED]:
        at = at_frame(user_frame(reader.thread.stack))
        lasted = index.lasting(reader.waited_s)
        yield f"{called(reader.process)} has waited {lasted} to read from it{at}"


def _advice(shared: SharedConnection, reader: Process) -> str:
    """Where to open a connection for each process, in the terms of what starts and opens them."""
    maker = shared.opened.about.rpartition(", ")[2] if shared.opened is not None else ""
    own = ""
    if maker.endswith("create_engine"):
        own = (
            " With SQLAlchemy, call engine.dispose(close=False) there first: it lets go of the "
            "inherited connections and leaves them open for the parent."
        )
    return (
        f"Open a connection in each process after the fork: {_PLACES.get(reader.role, _PLACE)}, or "
        "at the first use, with os.getpid() kept beside it to notice a fork; or register that with "
        f"os.register_at_fork(after_in_child=...).{own} Leave the inherited one alone in a child: "
        "a close() that says goodbye to the server ends it for all of them."
    )


_PLACE = "at the start of the function that the child runs"
_PLACES: Mapping[str, str] = MappingProxyType(
    {
        "loader-worker": "in the worker_init_fn of the DataLoader",
        "pool-worker": "in the initializer of the pool",
    }
)
