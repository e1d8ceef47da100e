"""A cycle of waits, or a wait that no process can end, that no other rule explains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mpwatch.describe.frames import frame_words
from mpwatch.diagnose.analysis.distributed.ranks import rank_groups
from mpwatch.diagnose.analysis.idle_time import CERTAIN_S, quiet_s
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.mechanisms.among_threads import in_opposite_order
from mpwatch.diagnose.analysis.mechanisms.cases import Mechanism
from mpwatch.diagnose.analysis.mechanisms.explain import mechanism_of
from mpwatch.diagnose.analysis.mechanisms.lost_limits import limits_of
from mpwatch.diagnose.analysis.mechanisms.lost_results import held_up_words
from mpwatch.diagnose.analysis.mechanisms.rank_cycles import (
    ChosenRoot,
    chosen_root,
    same_collective,
)
from mpwatch.diagnose.analysis.receivers import processes_with_callbacks
from mpwatch.diagnose.analysis.stack_patterns import main_thread, user_frame
from mpwatch.diagnose.analysis.waits.blockages import without_progress_s
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.diagnose.analysis.waits.edges import blocked_for_s
from mpwatch.diagnose.analysis.waits.futures import held_up
from mpwatch.diagnose.analysis.waits.lock_order import opposite_locks
from mpwatch.diagnose.analysis.waits.threads import (
    others_that_wait,
    sentence,
    threads_that_wait_for_each_other,
)
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Process
from mpwatch.model.waits import WaitChain, WaitLink

RULE = "standing-still"
REPORTED_S = 20.0
"""Longer than any other rule needs: a more specific finding is worth more than an early one."""
WRITING_S = 8.0
"""Enough for a cycle that a job with progress never has, see `Mechanism.is_certain`."""
SHOWN_THREADS = 2
_ADVICE = (
    "Look at the lines at which these processes wait, and give each wait a timeout, so that the "
    "end of another process becomes an error."
)


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each cycle or dead end that has lasted long enough.

    Also for a callback that waits for a result which only its own thread could receive, and for two
    threads that wait for each other's lock, whatever the main thread does meanwhile.
    """
    of_callbacks = dict(_of_callbacks(index))
    yield from of_callbacks.values()
    yield from _of_locks(index)
    if not any(_may_be_stalled(index, process) for process in index.snapshot.living()):
        return
    waits = wait_graph(index)
    reported: list[WaitChain] = []
    headlines: set[str] = set()
    ends: set[ProcessId | None] = set()
    for chain in waits.chains:
        if chain.verdict not in ("cycle", "dead-end") or _leads_into(chain, reported):
            continue
        if chain.links[-1].process in of_callbacks:
            continue
        certain = _certain_end(index, chain)
        if certain is not None and certain.process in ends:
            continue
        links = chain.links if certain is None else chain.links[-1:]
        lasted = _lasted_s(index, links)
        if certain is not None and lasted is not None:
            # A signal that comes again and again wakes it up, and changes nothing.
            lasted = max(lasted, links[0].since_s or 0.0)
        if lasted is None or lasted < CERTAIN_S:
            continue
        why = mechanism_of(index, waits, chain)
        needed = REPORTED_S if certain is None else CERTAIN_S
        if chain.verdict == "cycle" and why is not None and why.is_certain:
            needed = WRITING_S
        if lasted < needed or (why is not None and why.headline in headlines):
            continue
        reported.append(chain)
        if certain is not None:
            ends.add(certain.process)
        if why is not None and why.headline:
            headlines.add(why.headline)
        yield _finding(index, chain, why, lasted, is_certain=certain is not None)


def _of_callbacks(index: Index) -> Iterator[tuple[ProcessId, Finding]]:
    """The findings about callbacks that wait for a result which their own thread would receive."""
    for process in processes_with_callbacks(index):
        held = held_up(index, process.process)
        why = held_up_words(index, process) if held is not None else None
        if held is None or why is None or not why.is_certain:
            continue
        if (blocked_for_s(held.callback.thread) or 0.0) < CERTAIN_S:
            continue
        finding = Finding(
            rule=RULE,
            severity=Severity.CRITICAL,
            process=process.process,
            tid=held.callback.thread.tid,
            summary=why.headline.removesuffix("."),
            evidence=why.evidence,
            cause=why.cause,
            advice=why.advice,
        )
        yield process.process, finding


def _of_locks(index: Index) -> Iterator[Finding]:
    """The findings about locks in opposite order, of processes that have other threads at work."""
    for process in index.snapshot.living():
        found = opposite_locks(index, process.process)
        if found is None or found.waited_s < WRITING_S:
            continue
        if threads_that_wait_for_each_other(index, process.process):
            continue  # the chain that ends there says it
        why = in_opposite_order(index, process)
        if why is not None:
            yield Finding(
                rule=RULE,
                severity=Severity.CRITICAL,
                process=process.process,
                tid=found.one.thread.tid,
                summary=why.headline.removesuffix("."),
                evidence=why.evidence,
                cause=why.cause,
                advice=why.advice,
            )


def _may_be_stalled(index: Index, process: Process) -> bool:
    """Whether a process has made no progress for a while, or its main thread waits for as long."""
    quiet, main = quiet_s(process, index), main_thread(process)
    waited = blocked_for_s(main) if main is not None else None
    return max(quiet or 0.0, waited or 0.0) >= CERTAIN_S


def _leads_into(chain: WaitChain, reported: Sequence[WaitChain]) -> bool:
    """Whether a chain is, or leads into, a cycle that already has a finding."""
    in_cycle = set(chain.links[chain.cycle_at :])
    return chain.verdict == "cycle" and any(
        each.verdict == "cycle" and in_cycle == set(each.links[each.cycle_at :])
        for each in reported
    )


def _certain_end(index: Index, chain: WaitChain) -> Process | None:
    """The end of a chain if it lives and waits for what no process and no thread can do."""
    process = index.snapshot.get(chain.links[-1].process)
    if process is None or process.is_gone or process.sample.state == "Z":
        return None
    return process if chain.verdict == "dead-end" else None


def _lasted_s(index: Index, links: Sequence[WaitLink]) -> float | None:
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
        quiet = without_progress_s(process, index)
        if quiet is None:
            return None
        times.append(quiet)
    return min(times) if is_any_alive else None


def _finding(
    index: Index, chain: WaitChain, why: Mechanism | None, lasted_s: float, *, is_certain: bool
) -> Finding:
    """The finding for one chain.

    It is about the process at the end where that one lives and waits for what no process can do:
    the others of its chain only wait for it.
    """
    last = chain.links[-1]
    first = last if is_certain else chain.links[0]
    evidence = [
        chain.sentence,
        f"none of these processes has made progress for {index.lasting(lasted_s)}",
        *_places(index, chain),
        *(why.evidence if why is not None else ()),
    ]
    cause = (
        "No process and no thread is left that could end this wait."
        if len(chain.links) == 1
        else f"The wait chain of {first.name} ends at {last.name}, and no process can end that "
        "wait."
    )
    headline = why.headline if why is not None else ""
    root = _root(index, chain)
    if root is not None:
        cause, advice = root.cause, root.advice
        evidence += [root.evidence] if root.evidence else []
        headline = root.headline or headline
    elif why is not None:
        cause, advice = why.cause, why.advice
    else:
        advice = _ADVICE
    evidence += [each for each in limits_of(index, chain) if each not in evidence]
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=first.process,
        tid=first.tid,
        summary=_summary(first.name, headline) if headline else _blocked(first.name, chain),
        evidence=tuple(evidence),
        cause=cause,
        advice=advice,
    )


def _root(index: Index, chain: WaitChain) -> ChosenRoot | None:
    """Why ranks in one collective do not agree on which of them sends.

    All ranks of the job count, also those that no link of the chain names.
    """
    found = [index.snapshot.get(link.process) for link in chain.links]
    ranks: Sequence[Process] = [each for each in found if each is not None]
    whole = (each for each in rank_groups(index) if ranks and all(r in each for r in ranks))
    ranks = next(whole, ranks)
    return chosen_root(index, ranks) if same_collective(ranks) else None


def _summary(name: str, headline: str) -> str:
    """The summary; an `it` at the start of the headline is the process of the finding."""
    words = headline.removesuffix(".")
    return f"{name}{words[2:]}" if words.startswith("it ") else words


def _blocked(name: str, chain: WaitChain) -> str:
    """The summary where only the end of the chain is known."""
    return f"{name} is blocked and cannot make progress: {chain.conclusion}"


def _places(index: Index, chain: WaitChain) -> Iterator[str]:
    """The user-code line of each process of a chain, unless the chain's sentence names it.

    Also what its other threads wait for: one of them may be the one that was to answer.
    """
    seen: set[ProcessId] = set()
    for link in chain.links:
        process = index.snapshot.get(link.process)
        if process is None or process.is_gone or process.process in seen:
            continue
        seen.add(process.process)
        frame = user_frame(thread.stack) if (thread := main_thread(process)) is not None else None
        if frame is not None and frame_words(frame) not in chain.sentence:
            yield f"{link.name} is at {frame_words(frame)}"
        for thread in others_that_wait(index, process, link.tid)[:SHOWN_THREADS]:
            yield f"{link.name}: {sentence(process, thread)}"
