"""A cycle of waits, or a wait that no process can end, that no other rule explains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mpwatch.describe.frames import frame_words
from mpwatch.diagnose.analysis.idle_time import quiet_s
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.stack_patterns import main_shape, main_thread, user_frame
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.diagnose.analysis.waits.deadlocks import ADVICE as READ_BOTH
from mpwatch.diagnose.analysis.waits.deadlocks import unread_pipe
from mpwatch.diagnose.analysis.waits.verdicts import OWN_LOCK
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.units import seconds_text
from mpwatch.model.waits import WaitChain, WaitGraph, WaitLink

RULE = "standing-still"
STANDING_S = 20.0
"""Longer than any other rule needs: a more specific finding is worth more than an early one."""
WRITING_S = 8.0
"""Enough for a cycle in which every process writes and none reads, or takes locks only."""
CERTAIN_S = 3.0
"""Enough where the last process of the chain lives and no process can end its wait."""


_CAUSE_WRITING = (
    "Each process sends to the next and reads nothing until its send is complete. Earlier data "
    "fills the pipe or socket between them, so none of them gets to read."
)
_ADVICE_WRITING = (
    "Let one side receive before it sends, or read in a thread of its own. A Pipe without a "
    "reader accepts one socket buffer of data; Queue.put() does not block like this, because a "
    "background thread sends."
)
_CAUSE_LOCKS = (
    "Each of these processes waits to take a lock that the next one has as well, and none of them "
    "runs. Processes that take the same locks in different order block each other like this."
)
_ADVICE_LOCKS = (
    "Take the locks in the same order in every process, or use one lock in place of several. With "
    "acquire(timeout=...) a process can release what it holds and try again."
)
_CAUSE_OWN_LOCK = (
    "The thread is in the same function twice and waits for a lock that no other process or thread "
    "can hold: it took the lock before, and a Lock cannot be taken twice, not even by its holder."
)
_ADVICE_OWN_LOCK = (
    "Use an RLock, or release the lock before the call that takes it again; a private function "
    "that expects the lock to be held avoids the second acquire."
)
_CAUSE_UNREAD_QUEUE = (
    "Before it exits, a process that has put items on a multiprocessing queue waits until all of "
    "them are in the pipe, and a pipe holds 64 KiB. No other process can read the pipe any more."
)
_ADVICE_UNREAD_QUEUE = (
    "Read the queue until it is empty before the program ends, or call its cancel_join_thread() "
    "where the items may be lost."
)


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each cycle or dead end that has lasted long enough."""
    quiet = (quiet_s(process, index) for process in index.snapshot.living())
    if not any(each is not None and each >= CERTAIN_S for each in quiet):
        return
    waits = wait_graph(index)
    told: list[WaitChain] = []
    for chain in waits.chains:
        if chain.verdict not in ("cycle", "dead-end") or _leads_into(chain, told):
            continue
        certain = _certain_end(index, chain)
        links = chain.links if certain is None else chain.links[-1:]
        stood = _stood_s(index, links)
        needed = STANDING_S if certain is None else CERTAIN_S
        if _only_writes(waits, chain) or _only_takes_locks(index.snapshot, chain):
            needed = WRITING_S
        if stood is not None and stood >= needed:
            told.append(chain)
            yield _finding(index.snapshot, waits, chain, stood)


def _leads_into(chain: WaitChain, told: Sequence[WaitChain]) -> bool:
    """Whether a chain leads into a cycle that already has a finding.

    The end of such a chain is the cycle, entered at the same point (see `wait_chains`).
    """
    return any(
        chain.verdict == each.verdict == "cycle" and chain.links[-len(each.links) :] == each.links
        for each in told
    )


def _only_writes(waits: WaitGraph, chain: WaitChain) -> bool:
    """Whether every thread of a cycle is blocked in a send, so that none will read."""
    writing = {
        (edge.waiter, edge.tid)
        for edge in waits.edges
        if edge.kind in ("pipe-write", "socket-write")
    }
    members = [(link.process, link.tid) in writing for link in chain.links]
    return chain.verdict == "cycle" and all(members)


def _only_takes_locks(snapshot: Snapshot, chain: WaitChain) -> bool:
    """Whether every process of a cycle is about to take a lock, without a time limit."""
    return chain.verdict == "cycle" and all(
        process is not None
        and main_shape(process) == "lock-between-processes"
        and (thread := main_thread(process)) is not None
        and thread.waits_on is not None
        and thread.waits_on.kind == "semaphore"
        and thread.waits_on.timeout_s is None
        for process in map(snapshot.get, (link.process for link in chain.links))
    )


def _certain_end(index: Index, chain: WaitChain) -> Process | None:
    """The end of a chain if it lives and waits for what no process and no thread can do."""
    process = index.snapshot.get(chain.links[-1].process)
    if process is None or process.is_gone or process.sample.state == "Z":
        return None
    return process if chain.verdict == "dead-end" else None


def _stood_s(index: Index, links: Sequence[WaitLink]) -> float | None:
    """Seconds since any living process of a chain made progress; `None` if one was not watched.

    The exit of a process may unblock the others, so only the time since the exit counts.
    """
    times: list[float] = []
    is_any_alive = False
    for link in links:
        process = index.snapshot.get(link.process)
        if process is not None and process.ended is not None:
            times.append(index.snapshot.at_s - process.ended.at_s)
        if process is None or process.is_gone or process.sample.state == "Z":
            continue
        is_any_alive = True
        quiet = quiet_s(process, index)
        if quiet is None:
            return None
        times.append(quiet)
    return min(times) if is_any_alive else None


def _finding(snapshot: Snapshot, waits: WaitGraph, chain: WaitChain, stood_s: float) -> Finding:
    """The finding for one chain."""
    first, last = chain.links[0], chain.links[-1]
    evidence = [
        chain.sentence,
        f"none of these processes has made progress for {seconds_text(stood_s)}",
    ]
    evidence += _places(snapshot, chain)
    cause = (
        "These processes wait for each other in a cycle."
        if chain.verdict == "cycle"
        else "No process and no thread is left that could end this wait."
        if len(chain.links) == 1
        else f"The wait chain of {first.who} ends at {last.who}, and no process can end that wait."
    )
    advice = (
        "Run mpwatch dump on the processes named to see the lines where they wait. "
        "Ending the last process of the chain usually makes the others raise an error."
    )
    if _only_writes(waits, chain):
        cause, advice = _CAUSE_WRITING, _ADVICE_WRITING
    elif _only_takes_locks(snapshot, chain):
        cause, advice = _CAUSE_LOCKS, _ADVICE_LOCKS
    at_end = snapshot.get(last.process)
    if chain.conclusion == OWN_LOCK:
        cause, advice = _CAUSE_OWN_LOCK, _ADVICE_OWN_LOCK
    elif at_end is not None and main_shape(at_end) == "joins-queue":
        cause, advice = _CAUSE_UNREAD_QUEUE, _ADVICE_UNREAD_QUEUE
    unread = unread_pipe(snapshot, waits, chain)
    if unread is not None:
        evidence.append(unread.evidence)
        cause, advice = unread.cause, READ_BOTH
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=first.process,
        tid=first.tid,
        summary=f"{first.who} is blocked and cannot make progress: {chain.conclusion}",
        evidence=tuple(evidence),
        cause=cause,
        advice=advice,
    )


def _places(snapshot: Snapshot, chain: WaitChain) -> Iterator[str]:
    """The user-code line of each process of a chain, unless the chain's sentence names it."""
    seen: set[ProcessId] = set()
    for link in chain.links:
        process = snapshot.get(link.process)
        if process is None or process.is_gone or process.process in seen:
            continue
        seen.add(process.process)
        frame = user_frame(thread.stack) if (thread := main_thread(process)) is not None else None
        if frame is not None and frame_words(frame) not in chain.sentence:
            yield f"{link.who} is at {frame_words(frame)}"
