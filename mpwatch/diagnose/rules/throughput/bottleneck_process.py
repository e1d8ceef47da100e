"""One process delays the others: a busy one that they need, or one whose wait times out.

Also a process that needs ever more for each item, whether others wait for it or not.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

from mpwatch.describe.frames import frame_words, own_frames
from mpwatch.describe.processes import is_on_gpu
from mpwatch.diagnose.analysis.distributed.ranks import collective_share, ranks_of
from mpwatch.diagnose.analysis.growth.newest import own_lines, own_place
from mpwatch.diagnose.analysis.idle_time import mean_cpu_percent
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import (
    SERVICE_ROLES,
    age_s,
    all_called,
    called,
    counted,
)
from mpwatch.diagnose.analysis.process_queries import is_manager as is_a_manager
from mpwatch.diagnose.analysis.source.costs import Costly, costly
from mpwatch.diagnose.analysis.source.lines import line_at, mark_place, mark_words, marks
from mpwatch.diagnose.analysis.source.loops import collecting_loop
from mpwatch.diagnose.analysis.stack_patterns import (
    calls,
    collective_of,
    main_thread,
    runs_event_loop,
)
from mpwatch.diagnose.analysis.throughput.shares import (
    MAIN_PART,
    OVER_S,
    PROXY_READS,
    PROXY_WRITES,
    WATCHED_S,
    Asked,
    Place,
    asked,
    at_place,
    callers,
    core_share,
    doing_words,
    idle_share,
    imported_until_s,
    is_computing,
    is_work,
    main_account,
    shares,
    shares_lately,
    shares_of_all_threads,
    switches_between,
    switches_per_s,
    times_faster,
    with_a_core,
    work_place,
    working_share,
)
from mpwatch.diagnose.analysis.waits.blockages import without_progress_s
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.diagnose.analysis.waits.edges import CLIENTS as CLIENTS_WAITED_FOR
from mpwatch.model.account import JOB_WORKS, LAST_MINUTE_S, NO_CORE, RUNNING_KINDS, Share, together
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.history import Series, first_at, values_of
from mpwatch.model.ids import ProcessId
from mpwatch.model.progress import pace
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.source_code import Mark, Statement
from mpwatch.model.units import seconds_text

RULE = "bottleneck-process"
IS_OF_SHARES = True
SLOWS_DOWN = True
SAMPLES = 10
CLIENTS = 2
WAITING = 1.0
"""So many of the clients, on average, wait for an answer at any moment. On a machine with more
runnable threads than cores they wait for a core as well, which is not counted."""
WAIT_SHARE = 0.2
"""A client waits at least this part of the time."""
MAIN_SHARE = 0.5
"""Where main itself waits so much, it need not be one of several clients."""
BUSY_PERCENT = 50.0
BUSY_IF_CROWDED_PERCENT = 25.0
"""Of a core. Where more threads can run than there are cores, no process gets a whole one."""
PAUSES_S = 15.0
LOST_SHARE = 0.3
ANSWERS_S = 15.0
"""A process that has answered none of its clients for so long is no bottleneck, but stuck."""
ONE_WAIT = 0.9
"""Of the time in which a client was found waiting, it has waited so much without an answer now."""
ALWAYS = 0.98
LATELY = 4
"""Buckets of the account in which some process must have worked: a hang has other rules."""
COMPUTES_SHARE = 0.7
IDLE_SHARE = 0.5
ROUNDS_SHARE = 0.5
"""A process whose cpu time delays others computes at least this part of the time, or waits for a
core to."""
SLOWER = 1.4
ROUNDS_S = 120.0
ROUNDS_WATCHED_S = 27.0
SWITCHES = 10
"""Fewer switches of the children in a third of the time prove nothing."""
ROUND_TRIPS = 20.0
"""Waits a second of one line that are the round trips of its accesses."""
QUARTERS = 4
WORKS_SHARE = 0.6
DEARER = 1.5
LEAST_CPU_S = 0.5
"""In each quarter. Cpu time is counted in ticks of 10 ms: less of it means nothing."""
LEAST_STEP, MOST_STEP = 0.12, 0.6
"""Of what a cost gains over all quarters, so much is gained from one to the next: a steady rise
gains a third in each step, a change of phase all of it in one or two."""
READS_BYTES = 1 << 20
READS_MORE = 4.0
"""In each quarter, and times as much as is written: less is no reading of files again and again."""
LEAST_TIME = 0.1
"""With less time that was not a wait for a core, a share of it means nothing."""
HELD_SHARE = 0.6
"""A client of which answers are held back waits for them for this part of its time, at least."""
LITTLE_PERCENT = 20.0
"""A process that uses less of a core is not what takes the time."""
PROGRESS_S = 3.0
HELD_PER_S = (8.0, 80.0)
"""How often a client waits in a second where each of its round trips is held back by 40 ms, once or
in both directions: a message in two parts is one or two waits. Without it, a round trip takes a
fraction of a millisecond; and one that asks more rarely is not held back by this."""
SHOWN = 3
"""Callers that are named."""
RESTS_S = 1.0
"""A thread of a server that sleeps for so long, or longer, is not at a request."""
LOOPED_SHARE = 0.5
"""Of the time of each rank."""
LOOPED_PER_S = 50.0
"""Collectives, or waits, a second: with fewer, each of them may be of much data."""
LESS_BUSY = 0.6
"""A client uses at most this part of the cpu time of the process that it waits for."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each busy process whose answers several others wait for.

    A process that was started by the one it waits for is no client: workers that wait for tasks of
    a main process that computes are idle by design.
    """
    least_percent = BUSY_IF_CROWDED_PERCENT if _is_crowded(index) else BUSY_PERCENT
    for server, waiting in _servers(index).items():
        process = index.snapshot.get(server)
        busy = None if process is None else mean_cpu_percent(process, index.history, OVER_S)
        if process is None or busy is None:
            continue
        connected = list(_connected(index, process, waiting))
        lines = asked(index, process, connected)
        is_busy = busy >= least_percent
        if not is_busy and not any(map(_makes_round_trips, lines)):
            continue
        waits = {
            client.process: share
            for client in connected
            if (share := _wait_share(index, client, process)) is not None
            and share >= WAIT_SHARE
            and (
                not is_busy
                or (mean_cpu_percent(client, index.history, OVER_S) or 0.0) <= LESS_BUSY * busy
            )
        }
        is_main = waits.get(index.snapshot.root or server, 0.0) >= MAIN_SHARE
        if is_main or (len(waits) >= CLIENTS and sum(waits.values()) >= WAITING):
            clients = [each for each in index.snapshot.living() if each.process in waits]
            quiet_s = min(without_progress_s(each, index) or 0.0 for each in clients)
            if min(waits.values()) >= ALWAYS and quiet_s >= ANSWERS_S:
                continue  # it answers none of them: `no-progress` says that
            if all(_is_in_first_wait(index, each, process) for each in clients):
                continue
            yield _finding(
                index, process, busy if is_busy else None, clients, sum(waits.values()), lines
            )
    yield from _held_back(index)
    yield from _averaged_each_time(index)
    yield from _reduced_one_by_one(index)
    yield from _waits_in_vain(index)
    slower = list(_slower_rounds(index))
    yield from slower
    reported = {finding.process for finding in slower}
    at_lines: defaultdict[tuple[str, str], list[_AtLine]] = defaultdict(list)
    for process in index.snapshot.living():
        if process.process not in reported and process.role not in SERVICE_ROLES:
            dearer = list(_slows_down(index, process))
            yield from dearer
            found = None if dearer else _at_costly_line(index, process)
            if found is not None:
                at_lines[found.place.words, found.costs.words].append(found)
    for alike in at_lines.values():
        yield _finding_of_line(index, alike)


def _held_back(index: Index) -> Iterator[Finding]:
    """Answers for which clients wait nearly all the time, of a server that does next to nothing.

    Told where its source writes messages in two parts on connections that may hold small ones back.
    """
    found = marks(index, "two-writes")
    waits: defaultdict[ProcessId, dict[ProcessId, float]] = defaultdict(dict)
    for process in index.snapshot.living() if found else ():
        for server, share in _asks_over_tcp(index, process).items():
            if share >= HELD_SHARE and _does_little(index, process):
                waits[server][process.process] = share
    for identity, shares_of in waits.items():
        known = index.snapshot.get(identity)
        clients = [each for each in index.snapshot.living() if each.process in shares_of]
        if known is None or not _does_little(index, known) or not _are_held(index, clients):
            continue
        if _receives(index, known, shares_of):
            share = sum(shares_of.values()) / len(clients)
            yield _finding_of_held(index, known, clients, share, found)


def _are_held(index: Index, clients: Sequence[Process]) -> bool:
    """Whether clients get answers, and no faster than a delayed acknowledgement lets them come.

    What is received from a socket is in no count of bytes: how often a client waits tells it. Where
    that is not counted, they have to make progress, as without any no answer comes at all.
    """
    rates = [switches_per_s(index, each) for each in clients]
    known = [each for each in rates if each is not None]
    if len(known) == len(rates):
        least, most = HELD_PER_S
        return least <= min(known) and max(known) <= most
    return max(without_progress_s(each, index) or 0.0 for each in clients) < PROGRESS_S


def _receives(index: Index, server: Process, clients: Container[ProcessId]) -> bool:
    """Whether a server waits to receive all the time, as its clients do.

    In a thread for each connection, or in its main thread for the next request of any. One whose
    threads sleep, or wait for another server, delays its answers by that.
    """
    account = index.snapshot.account.processes.get(server.process)
    for thread in account.threads if account is not None else ():
        found = thread.last_minute().shares()
        got = sum(
            each.share
            for each in found
            if each.activity.what.startswith(_TCP_DATA)
            and any(provider in clients for provider in each.activity.providers)
        )
        no_core = sum(each.share for each in found if each.activity == NO_CORE)
        if got >= HELD_SHARE * (1 - no_core) > 0:
            return True
    idle = with_a_core(index, server, idle_share(index, server), LEAST_TIME)
    return idle >= HELD_SHARE and not any(map(_may_answer, server.threads[1:]))


def _may_answer(thread: Thread) -> bool:
    """Whether a thread beside the main one may be at a request: not one that rests for long."""
    wait = thread.waits_on
    rests = wait is not None and (
        wait.kind == "futex" or (wait.kind == "timer" and (wait.timeout_s or 0.0) >= RESTS_S)
    )
    return own_place(thread) is not None and not rests


def _writes_of(processes: Iterable[Process], found: Sequence[Mark]) -> Mark:
    """The statement in a file that the processes are in; else the first."""
    files = {frame.file for p in processes for thread in p.threads for frame in thread.stack}
    return next((each for each in found if each.file in files), found[0])


_TCP_DATA = "data on tcp "


def _asks_over_tcp(index: Index, process: Process) -> Mapping[ProcessId, float]:
    """The share of its time on a core in which a main thread waits for data of each server."""
    found: defaultdict[ProcessId, float] = defaultdict(float)
    for activity, share in shares(index, process):
        if activity.what.startswith(_TCP_DATA) and len(activity.providers) == 1:
            found[activity.providers[0]] += share
    return {each: with_a_core(index, process, share, LEAST_TIME) for each, share in found.items()}


def _does_little(index: Index, process: Process) -> bool:
    """Whether a process hardly computes."""
    percent = mean_cpu_percent(process, index.history, OVER_S)
    return percent is not None and percent <= LITTLE_PERCENT


def _finding_of_held(
    index: Index, server: Process, clients: Sequence[Process], share: float, found: Sequence[Mark]
) -> Finding:
    """Describe round trips in which neither side works."""
    writes = _writes_of((server, *clients), found)
    names = all_called(clients)
    percents = [mean_cpu_percent(each, index.history, OVER_S) or 0.0 for each in clients]
    percent = mean_cpu_percent(server, index.history, OVER_S) or 0.0
    rates = [per_s for each in clients if (per_s := switches_per_s(index, each)) is not None]
    often = (
        f"; each of these waits some {sum(rates) / len(rates):.0f} times a second"
        if len(rates) == len(clients)
        else ""
    )
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        is_doubtful=not often,
        process=server.process,
        others=tuple(each.process for each in clients),
        subject="held back",
        summary=(
            f"{names} {'waits' if len(clients) == 1 else 'wait'} {share:.0%} of the time for "
            f"answers of {called(server)}, and neither side works: the time is in the round trips "
            f"of messages that are written in two parts at {mark_place(writes)}"
        ),
        evidence=(
            f"{called(server)} uses {max(1.0, percent):.0f}% of a core or less, {names} "
            f"{max(1.0, *percents):.0f}% or less{often}",
            *(
                f"{called(each)}: {words}"
                for each in clients[:CLIENTS]
                if (words := doing_words(index, each)) is not None
            ),
            f"{mark_words(writes)} writes a message in two parts, and nothing in that file sets "
            "TCP_NODELAY",
        ),
        cause=(
            f"{mark_words(writes)} is the second of two writes of one message. On a TCP "
            "connection that is kept open, the kernel holds a second small write back until the "
            "first one is acknowledged (Nagle's algorithm), and the other end delays its "
            "acknowledgement by some 40 ms, as it has nothing to send before it has the rest. So "
            "each round trip takes 40 ms, and twice that where answers are written the same way, "
            "however little there is to do: 11 to 25 messages a second on each connection."
        ),
        advice=(
            "Set TCP_NODELAY on both ends (sock.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1); "
            "disable_nagle_algorithm = True in a handler of socketserver or http.server), or send "
            f"head and body in one write at {mark_place(writes)} (sendall(head + body), "
            "sendmsg([head, body]), or wbufsize = -1 in a handler). More cores, threads or server "
            "processes, a faster encoding and larger buffers do not make a round trip shorter: "
            "nobody computes. `ss -ti` shows ato:40 there."
        ),
    )


def _averaged_each_time(index: Index) -> Iterator[Finding]:
    """Ranks that spend their time in backward passes of which only the last one has to average.

    DistributedDataParallel averages the gradients in each backward pass outside of `no_sync`.
    """
    accumulates = {mark_place(each): each for each in marks(index, "accumulates")}
    ranks = ranks_of(index) if accumulates else []
    place = work_place(index, ranks)
    if len(ranks) < 2 or place is None or not place.is_main or place.words not in accumulates:
        return
    loop, step = accumulates[place.words].about.split(", ")
    yield Finding(
        rule=RULE,
        severity=Severity.INFO,
        is_doubtful=True,
        process=ranks[0].process,
        others=tuple(each.process for each in ranks[1:]),
        subject="each pass",
        summary=(
            f"{all_called(ranks)} spend most of their work at {place.words}, a backward pass in "
            f"each round of the loop of line {loop}, for one step of the optimizer"
        ),
        evidence=(
            *(
                f"{called(each)}: {words}"
                for each in ranks[:2]
                if (words := doing_words(index, each))
            ),
            f"the optimizer steps in line {step}, after that loop; no_sync() is not called there",
        ),
        cause=(
            "If the model is wrapped by DistributedDataParallel, each backward pass averages all "
            "gradients among the ranks, though only their sum before the step has to be averaged: "
            "that communication is done as many times as the loop has rounds."
        ),
        advice=(
            "Run all passes of the loop but the last one inside of model.no_sync() (the forward "
            "pass as well). Nothing is wrong where the passes themselves take the time: compare "
            "the time of a step with and without no_sync()."
        ),
    )


def _reduced_one_by_one(index: Index) -> Iterator[Finding]:
    """Ranks that spend their time in one short collective for each tensor, one after the other.

    A wait of gloo is for a condition of the own process, and too short for a stack of its own: the
    last stacks of most ranks are in the loop, and they are woken up many times a second. All of
    them wait: one that the others wait for, because it has more to do, does not.
    """
    found = marks(index, "looped-collective")
    ranks = ranks_of(index) if found else []
    for mark in found if len(ranks) > 1 else ():
        inside = [each for each in ranks if _is_in_loop(each, mark)]
        if len(inside) < 2 or 2 * len(inside) < len(ranks):
            continue
        share = min(collective_share(index, each, LEAST_TIME, is_in_loop=True) for each in ranks)
        per_s = _collectives_per_s(index, ranks)
        rounds = per_s if per_s is not None else _least_switches_per_s(index, ranks)
        if share >= LOOPED_SHARE and rounds is not None and rounds >= LOOPED_PER_S:
            yield _finding_of_looped(index, mark, ranks, share, per_s)
            return


def _is_in_loop(rank: Process, mark: Mark) -> bool:
    """Whether the last stack of a rank is in a collective that a statement of a loop calls."""
    thread = main_thread(rank)
    frames = own_frames(thread.stack) if thread is not None else ()
    if collective_of(frames) is None:
        return False
    last = int(mark.about.split(", ")[1].partition("-")[2])
    return any(
        (each.file, each.function) == (mark.file, mark.function)
        and mark.statement.line <= each.line <= last
        for each in frames
    )


def _collectives_per_s(index: Index, ranks: Sequence[Process]) -> float | None:
    """The collectives of each rank in a second, on average; `None` where no hook counts them."""
    identities = {each.process for each in ranks}
    sources = [
        each
        for each in index.snapshot.progress
        if each.kind == "collectives" and each.process in identities
    ]
    per_s = pace(sources, index.snapshot.at_s).now_per_s if sources else None
    return None if per_s is None else per_s / len(sources)


def _least_switches_per_s(index: Index, ranks: Sequence[Process]) -> float | None:
    """How often each rank waits in a second, at least."""
    counts = [switches_per_s(index, each) for each in ranks]
    known = [each for each in counts if each is not None]
    return min(known) if len(known) == len(ranks) else None


def _finding_of_looped(
    index: Index, mark: Mark, ranks: Sequence[Process], share: float, per_s: float | None
) -> Finding:
    """Describe collectives of single tensors."""
    kind, lines, over = mark.about.split(", ", 2)
    names, place, loop = all_called(ranks), mark_place(mark), lines.partition("-")[0]
    through = f" over {over}" if over else ""
    often = f", {per_s:.0f} collectives a second in each rank" if per_s is not None else ""
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=ranks[0].process,
        others=tuple(each.process for each in ranks[1:]),
        subject="each tensor",
        costs=share,
        summary=(
            f"{names} wait {share:.0%} of the time or more, last seen at {place}, in one blocking "
            f"{kind} for each tensor{often}"
        ),
        evidence=(
            f"{mark_words(mark)} is in the loop of line {loop}{through}: each call waits for all "
            "ranks before the next one begins",
            *(
                f"{called(each)}: {words}"
                for each in ranks[:2]
                if (words := doing_words(index, each))
            ),
        ),
        cause=(
            f"However small its tensor is, each {kind} takes the time of some messages between the "
            "ranks and of waiting for the slowest of them, and that once in each round of the loop "
            f"of line {loop}. That is latency, not data or computing, and the ranks spend it one "
            "tensor after the other."
        ),
        advice=(
            "Put the tensors into few large ones and call the collective once for each: "
            "torch._utils._flatten_dense_tensors() and _unflatten_dense_tensors(), "
            "torch.nn.utils.parameters_to_vector(), or torch.cat() of each one's view(-1). Or "
            f"start all with async_op=True at {place} and wait for them after the loop. "
            "DistributedDataParallel does both, beside the backward pass. More ranks, more threads "
            "or larger batches make a collective no cheaper."
        ),
    )


class _AtLine(Struct, frozen=True):
    """A process that spends its time at a line that takes long for what it does."""

    process: Process
    place: Place
    costs: Costly
    where: str
    """Of what the part of the time at that place is."""


def _at_costly_line(index: Index, process: Process) -> _AtLine | None:
    """The line at which a process spends its time, if that takes long for what it does."""
    if _computing_share(index, process) < COMPUTES_SHARE:
        return None
    for shares_of in (shares, shares_lately):
        place = work_place(index, (process,), shares_of=shares_of)
        found = costly(index, place.words) if place is not None and place.is_main else None
        if place is not None and found is not None:
            return _AtLine(process, place, found, "in that function")
        several = _costly_lines(index, shares_of(index, process))
        if several is not None:
            return _AtLine(process, *several, "at lines that do the same")
    return None


def _costly_lines(index: Index, found: Sequence[Share]) -> tuple[Place, Costly] | None:
    """Of several lines that take long for the same reason, that with most of the time.

    Together they have most of it. Each may be in a function of its own, as those that go down a
    tree.
    """
    parts: defaultdict[str, list[tuple[float, str, Costly]]] = defaultdict(list)
    known = 0.0
    for each in found:
        place = each.activity.place
        if not is_work(each.activity) or not place:
            continue
        known += each.share
        slow = costly(index, place)
        if slow is not None:
            parts[slow.cause].append((each.share, place, slow))
    most = max(parts.values(), key=lambda same: sum(share for share, *_ in same), default=[])
    part = sum(share for share, *_ in most) / known if most else 0.0
    if part < MAIN_PART:
        return None
    _, words, costs = max(most, key=lambda each: each[0])
    return Place(words, part), costs


def _finding_of_line(index: Index, alike: Sequence[_AtLine]) -> Finding:
    """Describe a line that takes long, for all processes that spend their time there."""
    processes = [each.process for each in alike]
    place, found = alike[0].place, alike[0].costs
    spend = "spends its time" if len(alike) == 1 else "spend their time"
    evidence = [
        line
        for each in alike[:CLIENTS]
        for line in (
            f"{called(each.process)}: {doing_words(index, each.process)}",
            f"{each.place.part:.0%} of its computing whose line is known is {each.where}",
        )
    ]
    line = line_at(index, place.words)
    called_by = callers(index, processes, line)[:SHOWN] if line is not None else []
    if line is not None and called_by:
        through = ", from ".join(map(frame_words, called_by))
        evidence.append(f"{line.function}() was last called from {through}")
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=processes[0].process,
        others=tuple(each.process for each in processes[1:]),
        subject="line",
        summary=f"{all_called(processes)} {spend} at {place.words}: {found.words}",
        evidence=tuple(evidence),
        cause=f"At that line, {found.words}{found.cause}",
        advice=found.advice,
    )


def _slower_rounds(index: Index) -> Iterator[Finding]:
    """A process that needs ever more cpu time for what its children wait for.

    Children that wait for a parent that computes are idle by design; rounds that take longer and
    longer are not. A parent that sleeps for much of the time sets their pace by that, and what it
    computes in between delays nobody.
    """
    waiting: dict[ProcessId, list[Process]] = {}
    for edge in wait_graph(index).edges:
        child = index.snapshot.get(edge.waiter)
        if edge.kind not in ("socket-read", "pipe-read") or child is None or child.is_gone:
            continue
        if child.role == "spawned" and child.parent is not None and child.parent in edge.providers:
            waiting.setdefault(child.parent, []).append(child)
    for identity in waiting:
        process = index.snapshot.get(identity)
        if process is None or _computing_share(index, process) < ROUNDS_SHARE:
            continue
        if working_share(index, process) < COMPUTES_SHARE:
            continue
        children = [
            each
            for each in index.snapshot.living()
            if each.parent == identity
            and each.role == "spawned"
            and not _waits_for_clients(index, each)
        ]
        idle = [1 - working_share(index, each) for each in children if shares(index, each)]
        if len(idle) < CLIENTS or min(idle) < IDLE_SHARE:
            continue
        rounds = _round_costs(index, process, children)
        if rounds is not None and rounds.ratio >= SLOWER:
            yield _finding_of_rounds(index, process, children, sum(idle) / len(idle), rounds)


def _waits_for_clients(index: Index, process: Process) -> bool:
    """Whether a process is a server that waits for requests, and not for its parent's rounds."""
    found = shares(index, process)
    return bool(found) and found[0].activity.what.startswith(CLIENTS_WAITED_FOR)


class _Rounds(Struct, frozen=True):
    """The cpu time that a process needs for a round of its children."""

    ratio: float
    """At the end of the time watched, compared with its beginning."""
    span_s: float


def _round_costs(index: Index, process: Process, children: Sequence[Process]) -> _Rounds | None:
    """The cpu time of a process for each switch of its children, by thirds; `None` if not rising.

    A child that does the same in each round gives up its core equally often in each. Cpu time is
    compared, and not time: another load of the machine does not count.
    """
    loads = index.history.of(process.process, "cpu_percent")
    started_s = imported_until_s(index, process)
    if started_s is not None:
        loads = loads[first_at(loads, started_s) :]
    if len(loads) < SAMPLES:
        return None
    # Switches are read every few seconds; those of taking stacks are not the program's own.
    from_s = max(loads[0].at_s, loads[-1].at_s - ROUNDS_S)
    span_s = loads[-1].at_s - from_s
    if span_s < ROUNDS_WATCHED_S:
        return None
    costs = []
    for third in range(3):
        begin_s, end_s = from_s + third * span_s / 3, from_s + (third + 1) * span_s / 3
        switches = sum(switches_between(index, each, begin_s, end_s) for each in children)
        if switches < SWITCHES:
            return None
        within = loads[first_at(loads, begin_s) : first_at(loads, end_s)]
        costs.append(sum(values_of(within)) / max(1, len(within)) * (end_s - begin_s) / switches)
    first, second, third_cost = costs
    if not 0 < first < second < third_cost:
        return None
    return _Rounds(third_cost / first, span_s)


class _Dearer(Struct, frozen=True):
    """What a process needs ever more of for the same amount of work."""

    costs: Sequence[float]
    """For each byte, in the quarters of the time watched, the first one being 1."""
    span_s: float


def _slows_down(index: Index, process: Process) -> Iterator[Finding]:
    """A process that needs ever more cpu time for what it reads, or reads ever more for its output.

    The bytes of its items measure its rounds. Cpu time is compared, so that the load of the machine
    does not count. What a process with a hook writes is what its hook sends as well.
    """
    loads = index.history.of(process.process, "cpu_percent")
    read = index.history.of(process.process, "main_read_bytes")
    if len(loads) < SAMPLES or len(read) < SAMPLES or is_on_gpu(process):
        return  # a wait for the GPU takes cpu time as well
    if _computing_share(index, process) < WORKS_SHARE:
        return
    started_s = imported_until_s(index, process) or loads[0].at_s
    from_s = max(started_s, loads[0].at_s, read[0].at_s, loads[-1].at_s - ROUNDS_S)
    span_s = loads[-1].at_s - from_s
    if span_s < ROUNDS_WATCHED_S:
        return
    ends = [from_s + part * span_s / QUARTERS for part in range(QUARTERS + 1)]
    cpu_s = [_cpu_s(loads, begin_s, end_s) for begin_s, end_s in pairwise(ends)]
    got = _moved(read, ends)
    if min(cpu_s) < LEAST_CPU_S:
        return
    if (costs := _rising(cpu_s, got)) is not None:
        yield _finding_of_costs(index, process, _Dearer(costs, span_s), is_cpu=True)
        return
    written = index.history.of(process.process, "written_bytes")
    if process.hook.state == "ready" or len(written) < SAMPLES or min(got) < READS_BYTES:
        return
    made = _moved(written, ends)
    costs = _rising(got, made)
    if costs is not None and all(r >= READS_MORE * w for r, w in zip(got, made, strict=True)):
        yield _finding_of_costs(index, process, _Dearer(costs, span_s), is_cpu=False)


def _computing_share(index: Index, process: Process) -> float:
    """The share of the time in which it computed, or waited for a core to: sleeps do not count."""
    found = shares(index, process)
    busy = sum(each.share for each in found if each.activity.kind in RUNNING_KINDS)
    return busy + core_share(index, process)


def _cpu_s(loads: Series, begin_s: float, end_s: float) -> float:
    """The cpu time that a process used in a stretch of time."""
    within = loads[first_at(loads, begin_s) : first_at(loads, end_s)]
    return sum(values_of(within)) / max(1, len(within)) / 100 * (end_s - begin_s)


def _moved(series: Series, ends_s: Sequence[float]) -> list[float]:
    """By how much a count rose between these moments; it has a point whenever it has risen."""
    values = [series[max(0, first_at(series, at_s) - 1)].value for at_s in ends_s]
    return [after - before for before, after in pairwise(values)]


def _rising(spent: Sequence[float], done: Sequence[float]) -> Sequence[float] | None:
    """What was spent on each unit, the first one being 1; `None` if it does not rise steadily.

    A step from one phase of a program to another is no steady rise.
    """
    if min(done) <= 0 or min(spent) <= 0:
        return None
    costs = [each / count for each, count in zip(spent, done, strict=True)]
    costs = [each / costs[0] for each in costs]
    gained = costs[-1] - 1
    steps = [after - before for before, after in pairwise(costs)]
    is_steady = min(steps) >= LEAST_STEP * gained and max(steps) <= MOST_STEP * gained
    return costs if gained >= DEARER - 1 and is_steady else None


def _finding_of_costs(index: Index, process: Process, found: _Dearer, *, is_cpu: bool) -> Finding:
    """Describe a process that slows down steadily."""
    place = work_place(index, [process])
    at = at_place(place)
    words, span = doing_words(index, process), seconds_text(found.span_s)
    what = (
        "cpu time for each byte that it takes from files and other processes"
        if is_cpu
        else "input for each byte that it writes"
    )
    needs = "needs ever more cpu time for its items" if is_cpu else "reads ever more for its output"
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=process.process,
        subject="rounds",
        summary=(
            f"{called(process)} slows down steadily: it {needs}{at}, {found.costs[-1]:.1f} times "
            f"as much as {span} before"
        ),
        evidence=(
            f"{what}, in quarters of {span}: "
            + ", ".join(f"{each:.2f}" for each in found.costs)
            + " (the first one is 1)",
            *((f"{called(process)}: {words}",) if words else ()),
        ),
        cause=_SEARCHES if is_cpu else _REREADS,
        advice=(
            f"Look at what each round goes through{at}, and at what has been added to that since "
            "the start: keep a set, an index or an offset in place of going through all of it. "
            "Nothing is wrong if the items are meant to cost more as the job goes on."
        ),
    )


_SEARCHES = (
    "The work for an item grows with the items before: a list that is searched from its start, an "
    "array that is copied to add to it, a result that is computed anew from everything so far."
)
_REREADS = (
    "What is read in a round grows with the rounds before: a file that is read from its start "
    "each time, or all files that were written so far."
)


def _finding_of_rounds(
    index: Index, process: Process, children: Sequence[Process], idle: float, rounds: _Rounds
) -> Finding:
    """Describe rounds that take ever more cpu time."""
    place = work_place(index, [process])
    at = at_place(place)
    words = doing_words(index, process)
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=process.process,
        subject="rounds",
        summary=(
            f"{called(process)} needs ever more cpu time for each round{at}: {rounds.ratio:.1f} "
            f"times as much as {seconds_text(rounds.span_s)} before, and "
            f"{counted(len(children), 'process', 'processes')} wait for it {idle:.0%} of the time"
        ),
        evidence=(
            f"cpu time of {process.label} for as many steps of {all_called(children)}: "
            f"{rounds.ratio:.1f} times as much in the last third of {seconds_text(rounds.span_s)} "
            "as in the first, with the second in between",
            *((f"{called(process)}: {words}",) if words else ()),
            *(f"{called(each)} is at {line}" for each in children[:2] if (line := own_lines(each))),
        ),
        cause=(
            "The work of a round grows with the rounds before: for example it goes through "
            "everything collected so far, because what was used is not cleared, or searches a list "
            "that only grows. The processes that wait for it get slower with it."
        ),
        advice=(
            f"Look at the size of what it goes through{at}: clear it after its use, or bound it."
        ),
    )


def _waits_in_vain(index: Index) -> Iterator[Finding]:
    """A loop that spends its time in waits with a time limit while no process of the job works.

    A pause that does not end is left to the rules for hangs: here some process has worked lately.
    """
    account = index.snapshot.account
    pauses = account.pauses()
    if account.job is None or pauses.readings < SAMPLES or pauses.observed_s < PAUSES_S:
        return
    observed_s = sum(pauses.seen.values())
    lost: defaultdict[tuple[ProcessId, ...], defaultdict[str, float]]
    lost = defaultdict(lambda: defaultdict(float))
    for each, seconds in pauses.seen.items():
        if each != JOB_WORKS:
            lost[each.providers][each.place] += seconds
    if not lost:
        return
    waiters, places = max(lost.items(), key=lambda item: sum(item[1].values()))
    process = index.snapshot.get(waiters[0]) if waiters else None
    place = max(filter(None, places), key=places.__getitem__, default="")
    seconds = sum(places.values())
    if process is None or not place or seconds < LOST_SHARE * observed_s:
        return
    recent = together(bucket.tally for bucket in account.job.buckets[-LATELY:])
    works = account.job.now == JOB_WORKS or JOB_WORKS in recent.seen
    if not works and (without_progress_s(process, index) or 0.0) >= ANSWERS_S:
        return
    thread = main_thread(process)
    if thread is not None and runs_event_loop(thread):
        return  # its time limit is that of its next timer
    others = [
        each
        for each in index.snapshot.living()
        if each.process != process.process and each.role not in SERVICE_ROLES
    ]
    if others and not _is_supervisor(index, process, place, others):
        yield _finding_of_pauses(index, process, place, seconds / observed_s, others)


_ENDS = re.compile("sentinel|exitcode|is_alive")
"""In a statement that waits for the ends of processes."""


def _is_supervisor(index: Index, process: Process, place: str, others: Sequence[Process]) -> bool:
    """Whether a loop waits for the ends of children, or for others that have stood still for long.

    It looks after them from time to time: no item is late for it.
    """
    line = line_at(index, place)
    if line is not None and _ENDS.search(line.statement.text):
        return True
    thread = main_thread(process)
    wait = thread.waits_on if thread is not None else None
    limit_s = (wait.timeout_s or 0.0) if wait is not None else 0.0
    quiet = [without_progress_s(each, index) or 0.0 for each in others if _waits_now(index, each)]
    return bool(quiet) and min(quiet) >= max(ANSWERS_S, 2 * limit_s)


def _waits_now(index: Index, process: Process) -> bool:
    """Whether a main thread waits now; one that sleeps beside threads may be a supervisor."""
    account = main_account(index, process.process)
    return account is not None and account.now.kind == "waiting"


def _finding_of_pauses(
    index: Index, process: Process, place: str, share: float, others: Sequence[Process]
) -> Finding:
    """Describe time lost in waits for items that no process makes."""
    meanwhile = [
        f"{called(each)}: {words}" for each in others[:2] if (words := doing_words(index, each))
    ]
    found = collecting_loop(line_at(index, place))
    cause, advice = _of_any_wait() if found is None else _of_a_batch(*found)
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        is_doubtful=found is None,
        process=process.process,
        subject="pauses",
        summary=(
            f"{called(process)} waits with a time limit at {place} while no process of the job "
            f"works, for {share:.0%} of the time"
        ),
        evidence=(
            f"in {share:.0%} of the readings {process.label} waited there, and each other process "
            "waited for a process of the job or for work",
            *meanwhile,
            f"without these waits the job would be at most {times_faster(share)} as fast",
        ),
        cause=cause,
        advice=advice,
    )


def _of_any_wait() -> tuple[str, str]:
    """Cause and advice for waits of which the source does not show what they are for."""
    return (
        "It waits for an item or an answer that no process is making at that time: the others "
        "have done their part and wait for their next tasks. Nothing happens until the time limit "
        "of the wait ends, or somebody outside of the job sends something.",
        "Nothing is wrong if the job waits for requests or for a time of its own: it has little to "
        "do then. Otherwise count what was requested and what has arrived, and leave the loop that "
        "receives as soon as everything has arrived. A shorter time limit only makes each loss "
        "smaller.",
    )


def _of_a_batch(header: Statement, size: str) -> tuple[str, str]:
    """Cause and advice for waits for more items of a batch."""
    return (
        f"The loop `{header.text}` of line {header.line} collects {size} items, and "
        "fewer come: those who would send the next ones wait for the answers to what it "
        "has already. So each batch waits until the time limit ends, however few items "
        "it gets and however fast they are computed.",
        "Wait a few milliseconds for more items, not longer than a batch takes to compute; or do "
        f"not wait when the queue is empty, or collect no more than can be under way at a time "
        f"({size} is more than that here). A faster model or GPU, and more processes, each of "
        "which then gets fewer items, do not help.",
    )


def _is_crowded(index: Index) -> bool:
    """Whether more threads of the machine could run than it has cores for, on average."""
    host = index.snapshot.host
    series = index.history.of_host("runnable")
    if len(series) >= SAMPLES:
        recent = series[first_at(series, series[-1].at_s - OVER_S) :]
        return sum(values_of(recent)) / len(recent) > (host.usable_cpus or 1)
    return host.runnable is not None and host.runnable > (host.usable_cpus or 1)


def _servers(index: Index) -> Mapping[ProcessId, set[ProcessId]]:
    """The processes whose answer others wait for now: those that read from a socket to them."""
    found: dict[ProcessId, set[ProcessId]] = {}
    for edge in wait_graph(index).edges:
        if edge.kind == "socket-read" and not edge.is_ordinary and len(edge.providers) == 1:
            client = index.snapshot.get(edge.waiter)
            if client is not None and _is_client(client, edge.providers[0]):
                found.setdefault(edge.providers[0], set()).add(edge.waiter)
    return found


def _is_client(process: Process, server: ProcessId) -> bool:
    """Whether a process may be one that asks; waits of ranks are explained by other rules."""
    return process.role != "rank" and server not in (process.process, process.parent)


def _connected(index: Index, server: Process, waiting: Collection[ProcessId]) -> Iterator[Process]:
    """The processes that wait for a server now, or have a connection to it."""
    own = {link.channel for link in server.sample.links if link.kind == "socket"}
    for process in index.snapshot.living():
        if process.process in waiting or (
            _is_client(process, server.process)
            and any(link.other_end in own for link in process.sample.links if link.peer is not None)
        ):
            yield process


def _wait_share(index: Index, client: Process, server: Process) -> float | None:
    """The share of readings that found it reading from a socket; `None` of too few.

    Of the time in which it did not wait for a core: then nobody knows what it waits for next.
    """
    recent = _readings(index, client, server)
    if len(recent) < SAMPLES or recent[-1].at_s - recent[0].at_s < WATCHED_S:
        return None
    share = sum(values_of(recent)) / len(recent)
    return min(1.0, share / max(1.0 - core_share(index, client), share, LEAST_TIME))


def _is_in_first_wait(index: Index, client: Process, server: Process) -> bool:
    """Whether the present wait is all the time that a client was found to wait for answers."""
    recent = _readings(index, client, server)
    values = values_of(recent)
    since = next((n + 1 for n in range(len(values) - 1, -1, -1) if not values[n]), 0)
    if since >= len(recent):
        return False
    found_s = recent[-1].at_s - recent[since].at_s
    waited_s = (recent[-1].at_s - recent[0].at_s) * sum(values) / len(values)
    waits_s = min(found_s, without_progress_s(client, index) or 0.0)
    return waits_s >= ONE_WAIT * waited_s


def _readings(index: Index, client: Process, server: Process) -> Series:
    """Whether the last readings found a client reading from a socket, from the server's start on.

    That lasts until it has imported what it needs, and until the first wait for it has ended: a
    message that says that it is ready is no answer. On a loaded machine readings are far apart, so
    that it takes longer until there are enough.
    """
    series = index.history.of(client.process, "answer_wait")
    if len(series) < SAMPLES:
        return series[:0]
    last_s = series[-1].at_s
    since_s = max(last_s - LAST_MINUTE_S, min(last_s - OVER_S, series[-SAMPLES].at_s))
    imported_s = imported_until_s(index, server)
    if imported_s is not None:
        since_s = max(since_s, imported_s)
    age = age_s(index.snapshot, server)
    if age is not None:
        since_s = max(since_s, _end_of_first_wait_s(series, index.snapshot.at_s - age))
    return series[first_at(series, since_s) :]


def _end_of_first_wait_s(series: Series, from_s: float) -> float:
    """When the first of these waits ended that was seen from a time on; that time if it lasts."""
    later = series[first_at(series, from_s) :]
    values = values_of(later)
    first = next((n for n, value in enumerate(values) if value), len(values))
    end = next((n for n in range(first, len(values)) if not values[n]), None)
    return from_s if end is None else later[end].at_s


def _finding(
    index: Index,
    server: Process,
    busy: float | None,
    clients: Sequence[Process],
    waiting: float,
    places: Sequence[Asked],
) -> Finding:
    """Describe the process and the waits for it; `busy` is its percentage of a core, if much."""
    is_manager = is_a_manager(server) or any(
        calls(thread.stack, "managers.py:_callmethod")
        for client in clients
        for thread in client.threads
    )
    asks = (
        f"{all_called(clients)} ask it; on average {waiting:.1f} of them wait for its answer at "
        "any moment"
        if len(clients) > 1
        else f"{called(clients[0])} asks it, and waits for its answers {waiting:.0%} of the time"
    )
    evidence = [asks]
    if busy is not None:
        evidence.append(
            f"{called(server)} used {busy:.0f}% of a core in the last {OVER_S:.0f} s, more than "
            "any of them"
        )
    evidence += map(_asked_words, places)
    if not places:
        at = ((each, own_lines(each)) for each in clients[:2])
        evidence += [f"{called(each)} asks at {lines}" for each, lines in at if lines]
    if _main_works(index, server) and (lines := own_lines(server)) is not None:
        evidence.append(f"{called(server)} is at {lines}")
    is_one = len(clients) == 1
    waiters = f"{called(clients[0])} waits" if is_one else f"{len(clients)} processes wait"
    mostly = f", asked {'mostly ' * (len(places) > 1)}at {places[0].place}" if places else ""
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=server.process,
        summary=(
            f"{waiters} for the answers of {'the Manager ' * is_manager}{called(server)}"
            f"{_AGAIN if busy is None else _IS_BUSY}{mostly}"
        ),
        evidence=tuple(evidence),
        cause=" ".join(
            (
                *(() if busy is None else (_CAUSE_ONE if is_one else _CAUSE,)),
                *((_CAUSE_MANAGER + _round_trips(places),) if is_manager else ()),
            )
        ),
        advice=_manager_advice(places) if is_manager else _ADVICE,
    )


def _main_works(index: Index, server: Process) -> bool:
    """Whether the main thread does most of what a process computes, and not other threads."""
    own, of_all = (
        sum(each.share for each in found if is_computing(each.activity))
        for found in (shares(index, server), shares_of_all_threads(index, server))
    )
    return own > 0 and own >= MAIN_PART * of_all


def _makes_round_trips(line: Asked) -> bool:
    """Whether a line accesses a proxy again and again: each access costs a message and an answer.

    That takes its time however busy the manager is; where many processes want the cores, it gets
    little of them. Methods that wait in the manager for something else do not count.
    """
    is_quick = line.method in (PROXY_READS | PROXY_WRITES) - {"get", "put"}
    return is_quick and (line.per_s or 0.0) >= ROUND_TRIPS


def _asked_words(line: Asked) -> str:
    """One line at which a server is asked, as evidence."""
    often = f", with about {line.per_s:.0f} waits a second" if line.per_s is not None else ""
    verb = "asks" if len(line.processes) == 1 else "ask"
    most = "" if len(line.processes) == 1 else "up to "
    return (
        f"{all_called(line.processes)} {verb} at {line.place}: that takes {most}"
        f"{line.share:.0%} of the time{often}"
    )


def _round_trips(places: Sequence[Asked]) -> str:
    """What is called of proxies at the lines that ask."""
    shown = [each for each in places if each.method]
    if not shown:
        return ""
    parts = [f"{each.place} calls {each.method} of a proxy" for each in shown]
    return f" {' and '.join(parts)}: each call is one such round trip."


def _manager_advice(places: Sequence[Asked]) -> str:
    """What to do instead of the accesses that were seen, those with most requests first."""
    reads = next((each for each in places if each.method in PROXY_READS), None)
    writes = next((each for each in places if each.method in PROXY_WRITES), None)
    if reads is None and writes is None:
        return _ADVICE_MANAGER
    found = sorted(filter(None, (reads, writes)), key=places.index)
    texts = [(_READ_ONCE if each is reads else _WRITE_ONCE).format(at=each.place) for each in found]
    return " ".join((*texts, _NO_PROXY))


_READ_ONCE = (
    "Read the proxy of {at} once into a local object and use that: proxy[:] of a list and "
    "proxy.copy() of a dict are one message, while a loop over a list's proxy is one for each "
    "element."
)
_WRITE_ONCE = (
    "Collect what {at} writes in a local object and pass it on at once: extend() of a list and "
    "update() of a dict are one message for many entries."
)
_NO_PROXY = (
    "What does not change is passed to each process as a plain argument, and numbers are in shared "
    "memory (a tensor after share_memory_(), multiprocessing.Array)."
)
_IS_BUSY = ", which is busy: it is the bottleneck"
_AGAIN = ", in one round trip after the other"
_CAUSE = (
    "All of them send their requests to one process, which is busy answering. Together they cannot "
    "be faster than that process, however many there are."
)
_CAUSE_ONE = (
    "It sends requests to another process and waits until that has made, packed and sent each "
    "answer, so of the two only one works at a time."
)
_CAUSE_MANAGER = (
    "It is the process of a multiprocessing Manager: each access to a proxy is a message to it "
    "and an answer from it, and it runs Python in one thread at a time."
)
_ADVICE = (
    "Ask less often and for more at a time, answer in several processes, or compute in the "
    "processes that ask."
)
_ADVICE_MANAGER = (
    "Do not access a proxy for each element: work on a local object and write the result once "
    "(update() with many entries is one message). Use an array in shared memory (a tensor after "
    "share_memory_(), multiprocessing.Array) for numbers, and a read-only argument for what does "
    "not change."
)
