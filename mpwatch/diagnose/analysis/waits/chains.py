"""The wait-for graph of one moment: its chains, and in words why a job is stalled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from mpwatch.describe.waits import edge_words
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.pipes import channels_among, writers_by_name
from mpwatch.diagnose.analysis.stack_patterns import main_thread
from mpwatch.diagnose.analysis.waits.connections import Answering, has_accepted, peer_of_wait
from mpwatch.diagnose.analysis.waits.edges import (
    ReadContext,
    answers_to,
    blocked_for_s,
    edge_of_answering,
    edges_of,
    surroundings,
)
from mpwatch.diagnose.analysis.waits.file_locks import LOCK_FILE, LOCK_ON
from mpwatch.diagnose.analysis.waits.futures import LOST_S, has_unanswered_call
from mpwatch.diagnose.analysis.waits.providers import held_lock, words_of
from mpwatch.diagnose.analysis.waits.verdicts import (
    NO_TASK,
    OUTSIDE,
    RECEIVES,
    WaitEnd,
    end_at,
    end_of_answer,
    end_of_receiving,
    end_of_unseen,
)
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Process
from mpwatch.model.units import seconds_text
from mpwatch.model.waits import SETTLED_S, Verdict, WaitChain, WaitEdge, WaitGraph, WaitLink

CHAINS_LIMIT = 64

_TRIES = (f"waits for {LOCK_ON}", f"waits for {LOCK_FILE}")


class _Found(Struct, frozen=True):
    """A chain that was followed."""

    chain: WaitChain
    is_cycle: bool = False
    """The chain is a cycle from its first link on, without a process that leads into it."""


class ChainBuilder:
    """Follows the edges of one snapshot."""

    def __init__(
        self,
        around: ReadContext,
        edges: Sequence[WaitEdge],
        answers: Mapping[tuple[ProcessId, int, ProcessId], Answering] = MappingProxyType({}),
    ) -> None:
        self._around = around
        self._index = around.index
        self._answers = answers
        self._processes = {process.process: process for process in around.index.snapshot.processes}
        self._names = _names(around.index.snapshot.processes)
        by_waiter: dict[ProcessId, list[WaitEdge]] = {}
        for edge in edges:
            by_waiter.setdefault(edge.waiter, []).append(self._among_known(edge))
        self._edges = {
            process.process: _telling(around.index, process, by_waiter.get(process.process, []))
            for process in around.index.snapshot.processes
        }
        self._ends = {
            process.process: end
            for process in around.index.snapshot.processes
            if (end := end_at(around, process, self._edges[process.process])) is not None
        }
        self._steps = self._steps_to_an_end()

    def _among_known(self, edge: WaitEdge) -> WaitEdge:
        """An edge without providers that are no longer in the snapshot."""
        if all(map(self._processes.__contains__, edge.providers)):
            return edge
        known = tuple(process for process in edge.providers if process in self._processes)
        return replace(edge, providers=known)

    def chains(self) -> tuple[WaitChain, ...]:
        """All chains: stalled ones first, none that is part of another."""
        # What their other threads wait for is part of the chains of their clients.
        servers = {each.server.process for each in self._answers.values()}
        starts = [
            process
            for process, edges in self._edges.items()
            if any(not edge.is_ordinary for edge in edges)
            and not (process in servers and edges[0].is_ordinary)
        ]
        found = _without_parts([self._chain(process) for process in starts])
        return tuple(each.chain for each in sorted(found, key=_rank)[:CHAINS_LIMIT])

    def _steps_to_an_end(self) -> dict[ProcessId, int]:
        """Links from each process to one that can progress; stalled processes are missing."""
        steps = {process: 0 for process, end in self._ends.items() if end.verdict != "dead-end"}
        waiting = {
            process: {p for edge in edges for p in edge.providers} - {process}
            for process, edges in self._edges.items()
            if process not in self._ends
        }
        is_growing = True
        while is_growing:
            reached = {
                process: 1 + min(steps[p] for p in providers if p in steps)
                for process, providers in waiting.items()
                if process not in steps and not providers.isdisjoint(steps)
            }
            steps.update(reached)
            is_growing = bool(reached)
        return steps

    def _chain(self, start: ProcessId) -> _Found:
        """Follow the waits from one process to their end, or back to one of them."""
        links: list[WaitLink] = []
        seen: dict[tuple[ProcessId, int | None], int] = {}
        at, edge = start, None
        answer: Answering | None = None
        while (at, answer.thread.tid if answer else None) not in seen:
            seen[at, answer.thread.tid if answer else None] = len(links)
            process = self._processes[at]
            before, edge = edge, None
            if answer is not None:
                edge = edge_of_answering(self._around, answer)
                end = end_of_answer(self._around, answer, edge)
            else:
                end = self._end_for(process, before)
            if end is not None:
                links.append(self._last(process, end))
                return _Found(WaitChain(tuple(links), end.verdict, end.conclusion))
            if edge is None:
                edge = self._deciding_edge(process)
                links.extend(self._step(process, self._edges[at][0], edge))
            else:
                links.extend(self._step(process, edge, edge))
            at = self._next(process, edge)
            answer = self._answer(edge, at)
        place = seen[at, answer.thread.tid if answer else None]
        cycle = _cycle(self._index, links, place, self._names[at])
        if cycle.verdict == "cycle" and self._may_end_outside(cycle):
            cycle = WaitChain(cycle.links, "unknown", OUTSIDE)
        return _Found(cycle, is_cycle=cycle.verdict == "cycle" and place == 0)

    def _answer(self, edge: WaitEdge, server: ProcessId) -> Answering | None:
        """The thread of a server that has the connection of a wait.

        Where it waits for a lock that another thread of the server holds, that one counts.
        """
        found = self._answers.get((edge.waiter, edge.tid, server))
        if found is None or held_lock(self._index, server) is None:
            return found
        return None if found.how == "handles" else found

    def _end_for(self, process: Process, edge: WaitEdge | None) -> WaitEnd | None:
        """Why a chain ends at a process to which an edge leads."""
        end = self._ends.get(process.process)
        edges = self._edges[process.process]
        if end is None and edge is not None and edges:
            return end_of_receiving(self._around, process, edges[0])
        waiter = self._processes.get(edge.waiter) if edge is not None else None
        if end is None or edge is None or waiter is None:
            return end
        if end.verdict == "ordinary" and has_unanswered_call(self._index, edge.waiter):
            is_brief = (edge.since_s or 0.0) < LOST_S
            return end if is_brief else replace(end, verdict="unknown", conclusion=NO_TASK)
        thread = next((each for each in waiter.threads if each.tid == edge.tid), None)
        ends = peer_of_wait(self._around.pipes, thread) if thread is not None else None
        if ends is None or not has_accepted(self._index, process, ends[1]):
            return end
        return end_of_unseen(process, end, edge.since_s)

    def _may_end_outside(self, cycle: WaitChain) -> bool:
        """Whether a process of the job that was not looked at may end one of the waits of a cycle.

        Which processes have a semaphore shows in their mappings only.
        """
        if self._index.snapshot.part_of is None:
            return False
        waiters = {(link.process, link.tid) for link in cycle.links[cycle.cycle_at :]}
        return any(
            edge.kind == "semaphore"
            for edges in self._edges.values()
            for edge in edges
            if (edge.waiter, edge.tid) in waiters
        )

    def _deciding_edge(self, process: Process) -> WaitEdge:
        """The edge to follow: towards a process that can progress, else to any other."""
        outside = [
            edge for edge in self._edges[process.process] if set(edge.providers) - {process.process}
        ]
        return next((e for e in outside if any(p in self._steps for p in e.providers)), outside[0])

    def _next(self, process: Process, edge: WaitEdge) -> ProcessId:
        """The process to follow: the one nearest to progress, else at a dead end, else the first.

        A forked child inherits the pipe ends of siblings started before it, and never uses them:
        so its parent and its children are preferred. The users of a semaphore are sorted, the
        likeliest to release it first, and of those the first that can progress counts.
        """
        others = [p for p in edge.providers if p != process.process]
        others = self._writers(process, edge, others) or others
        movable = [p for p in others if p in self._steps]
        if movable and edge.kind == "semaphore":
            return movable[0]
        if movable:
            return min(movable, key=self._steps.__getitem__)
        kin = []
        if edge.kind != "semaphore":
            # A parent that only joins may have kept the end of a pair that is for a third process;
            # what a queue is read from is rather written by the parent.
            if edge.kind in ("socket-read", "socket-write"):
                others = [p for p in others if not self._is_bystander(p, process, edge)] or others
            kin = [p for p in others if self._is_kin(process, self._processes.get(p))]
        return next((p for p in kin or others if p in self._ends), (kin or others)[0])

    def _writers(
        self, process: Process, edge: WaitEdge, others: list[ProcessId]
    ) -> list[ProcessId]:
        """Of several processes that could write what one reads from a queue, those seen to."""
        if edge.kind != "pipe-read" or len(others) < 2:
            return others
        thread = next((each for each in process.threads if each.tid == edge.tid), None)
        return writers_by_name(self._index, thread, others) if thread is not None else others

    def _is_bystander(self, parent: ProcessId, process: Process, edge: WaitEdge) -> bool:
        """Whether a process only joins others, and has both ends of the socket of a wait.

        One that has kept only its own end talks to the process that has the other.
        """
        edges = self._edges[parent]
        if not edges or any(edge.kind != "child" for edge in edges):
            return False
        thread = next((each for each in process.threads if each.tid == edge.tid), None)
        wait = thread.waits_on if thread is not None else None
        fds = self._processes[parent].sample.fds
        if wait is None or fds is None or fds.links is None:
            return True
        ends = channels_among(wait.targets)
        return any(link.channel in ends for link in fds.links)

    @staticmethod
    def _is_kin(one: Process, other: Process | None) -> bool:
        """Whether one of them started the other."""
        return other is not None and (
            one.sample.parent_pid == other.pid or other.sample.parent_pid == one.pid
        )

    def _step(self, process: Process, first: WaitEdge, edge: WaitEdge) -> Iterable[WaitLink]:
        """The link along an edge; two links where another thread than the main one decides."""
        name = self._names[process.process]
        if edge is not first:
            thread = next((t.name for t in process.threads if t.tid == edge.tid), f"{edge.tid}")
            words = f"{edge_words(first)}, by way of its thread {thread}"
            yield WaitLink(process.process, first.tid, name, words, first.since_s)
        words = edge_words(edge)
        lock = held_lock(self._index, process.process)
        if lock is not None and edge.tid == lock.holder.tid:
            words = f"{words} in {words_of(process, lock)}"
        yield WaitLink(process.process, edge.tid, name, words, edge.since_s)

    def _last(self, process: Process, end: WaitEnd) -> WaitLink:
        """The last step of a chain."""
        by_tid = {thread.tid: thread for thread in process.threads}
        thread = main_thread(process) if end.tid is None else by_tid[end.tid]
        is_still = thread is not None and end.conclusion != RECEIVES
        since_s = blocked_for_s(thread) if thread is not None and is_still else None
        tid = thread.tid if thread is not None else None
        return WaitLink(process.process, tid, self._names[process.process], end.words, since_s)


def _names(processes: Iterable[Process]) -> dict[ProcessId, str]:
    """A name for each process, with its pid where the label is not unique."""
    processes = tuple(processes)
    count = Counter(process.label for process in processes)
    return {
        p.process: p.label if count[p.label] == 1 else f"{p.label} ({p.pid})" for p in processes
    }


def _telling(index: Index, process: Process, edges: Sequence[WaitEdge]) -> list[WaitEdge]:
    """The edges that decide about a process: its main thread's, then others that are not idle.

    Where its threads wait for a lock, those of the thread that has it come first.
    """
    lock, main = held_lock(index, process.process), main_thread(process)
    first = main if lock is None else lock.holder
    tid = first.tid if first is not None else None
    deciding = [edge for edge in edges if edge.tid == tid]
    return deciding + [edge for edge in edges if edge.tid != tid and not edge.is_ordinary]


def _cycle(index: Index, links: Sequence[WaitLink], start: int, name: str) -> WaitChain:
    """A chain whose last link leads back to an earlier one.

    The waits before that link do not belong to the cycle, nor do their times.
    """
    in_cycle = links[start:]
    # One that tries for a lock on a file wakes up for each attempt, and waits all the same.
    steady = [link for link in in_cycle if not link.words.startswith(_TRIES)] or in_cycle
    known = [link.since_s for link in steady if link.since_s is not None]
    if len(known) < len(steady):
        words = "A cycle of waits at this moment; a second reading shows whether it lasts."
        return WaitChain(tuple(links), "unknown", words)
    if min(known) < SETTLED_S:
        words = f"A cycle of waits for {seconds_text(min(known))}, too short a time for a deadlock."
        return WaitChain(tuple(links), "progress", words)
    words = (
        f"Back to {name}, for {index.lasting(min(known))}: each waits for the next, so none of"
        " them can continue."
    )
    return WaitChain(tuple(links), "cycle", words, start)


_ORDER: Mapping[Verdict, int] = {
    "cycle": 0,
    "dead-end": 0,
    "unknown": 1,
    "progress": 2,
    "ordinary": 3,
}


def _rank(found: _Found) -> tuple[int, bool, int]:
    """Sort key: stalled first, cycles before chains that lead into them, longer first."""
    chain = found.chain
    return (_ORDER[chain.verdict], not found.is_cycle, -len(chain.links))


def _without_parts(chains: Sequence[_Found]) -> list[_Found]:
    """Drop chains that are the end of a longer one, and cycles entered at another point.

    A cycle begins with the first of its processes in the snapshot, which is main where it belongs
    to the cycle. It is kept where other chains lead into it: it is their reason.
    """
    kept: list[_Found] = []
    last_links: set[WaitLink] = set()
    cycles: set[frozenset[ProcessId | None]] = set()
    for found in sorted(chains, key=lambda each: (not each.is_cycle, -len(each.chain.links))):
        chain = found.chain
        processes = frozenset(link.process for link in chain.links)
        if processes in cycles:
            continue
        if chain.links[-1] in last_links and any(_is_tail(chain, other.chain) for other in kept):
            continue
        if chain.verdict == "cycle":
            cycles.add(processes)
        kept.append(found)
        last_links.add(chain.links[-1])
    return kept


def _is_tail(chain: WaitChain, longer: WaitChain) -> bool:
    """Whether a chain repeats the end of a longer one."""
    count = len(chain.links)
    return count < len(longer.links) and longer.links[-count:] == chain.links


@derived
def wait_graph(index: Index) -> WaitGraph:
    """Derive all waits of a snapshot and the chains they form.

    System calls and their arguments suffice for most of it; stacks and the hook's readings say more
    precisely what is waited for. Nothing is assumed about processes that could not be read: a chain
    that reaches one ends as `unknown`.
    """
    around = surroundings(index)
    edges = [edge for process in index.snapshot.living() for edge in edges_of(around, process)]
    answers = answers_to(around, edges)
    chains = ChainBuilder(around, edges, answers).chains()
    known = {(edge.waiter, edge.tid) for edge in edges}
    for answer in answers.values():
        edge = edge_of_answering(around, answer)
        if edge is not None and (edge.waiter, edge.tid) not in known:
            known.add((edge.waiter, edge.tid))
            edges.append(edge)
    return WaitGraph(tuple(edges), chains)


@derived
def answering_threads(index: Index) -> Mapping[tuple[ProcessId, int], Answering]:
    """The threads of servers that have the connection of a client which waits, by thread."""
    found: dict[tuple[ProcessId, int], Answering] = {}
    for each in answers_to(surroundings(index), wait_graph(index).edges).values():
        found.setdefault((each.server.process, each.thread.tid), each)
    return found


@derived
def ends_of_waits(index: Index) -> Mapping[ProcessId, frozenset[ProcessId]]:
    """For each process that waits now, the processes at the ends of its wait chains that progress.

    A process that waits is part of one chain at least: those that are the end of a longer one are
    shown in that one only.
    """
    found: dict[ProcessId, set[ProcessId]] = {}
    for chain in wait_graph(index).chains:
        last = chain.links[-1].process
        if chain.verdict == "progress" and last is not None:
            for link in chain.links[:-1]:
                if link.process is not None:
                    found.setdefault(link.process, set()).add(last)
    return {process: frozenset(ends) for process, ends in found.items()}


def waiting_behind(index: Index, process: Process) -> tuple[Process, ...]:
    """The processes that wait for one, directly or in a chain."""
    found: dict[ProcessId, Process] = {}
    for chain in wait_graph(index).chains:
        links = [each.process for each in chain.links]
        for link in links[: links.index(process.process)] if process.process in links else ():
            other = index.snapshot.get(link) if link is not None else None
            if other is not None and other is not process:
                found[other.process] = other
    return tuple(found.values())
