"""Ranks wait in a collective for one that has not come."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from mpwatch.describe.findings import capital
from mpwatch.describe.frames import frame_words, own_frames, program_frames
from mpwatch.describe.processes import names_text, wait_verb
from mpwatch.describe.waits import LOCK_OF_THREADS, object_words
from mpwatch.diagnose.analysis.distributed.clean_up import hiding_clean_up
from mpwatch.diagnose.analysis.distributed.flight_recorder import (
    launched,
    launched_apart,
    number_of,
    recorded,
    world_size,
)
from mpwatch.diagnose.analysis.distributed.habits import usual_wait_s
from mpwatch.diagnose.analysis.distributed.nccl_words import Late, late_ranks, nccl_words
from mpwatch.diagnose.analysis.distributed.passed_over import (
    PassedOver,
    passed_over,
    passed_over_in_forward,
)
from mpwatch.diagnose.analysis.distributed.rank_exits import is_of_earlier_attempt
from mpwatch.diagnose.analysis.distributed.ranks import (
    ALL_INSIDE_S,
    ALL_STALLED_S,
    BACKWARD,
    NEW_GROUP,
    OF_NCCL,
    ON_GPU,
    OTHERS,
    PAUSE_S,
    STORE,
    WORKING_PERCENT,
    WORKING_S,
    LeftFunction,
    all_on_gpu,
    apart,
    block_of_one,
    called_at,
    called_from,
    groups_apart,
    has_joined,
    is_in_backward,
    joining_for_s,
    joining_groups,
    left_function,
    place_of,
    rank_groups,
    standing_s,
    strays,
)
from mpwatch.diagnose.analysis.distributed.unfinished_loops import UnfinishedLoop, unfinished_loop
from mpwatch.diagnose.analysis.exits.kinds import death_of
from mpwatch.diagnose.analysis.growth.newest import children_of
from mpwatch.diagnose.analysis.idle_time import (
    STALLED_S,
    are_stalled,
    is_stalled,
    mean_cpu_percent,
    quiet_s,
)
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.mechanisms.cases import ended_words
from mpwatch.diagnose.analysis.mechanisms.rank_cycles import ONE_SIDED, chosen_root
from mpwatch.diagnose.analysis.pipes import channels_among, output_of, pipe_ends
from mpwatch.diagnose.analysis.process_queries import (
    all_called,
    called,
    family_head,
    is_stopped,
    loader_owners,
)
from mpwatch.diagnose.analysis.source.branches import (
    asks_the_time,
    collective_under_rank,
    guard_on_rank,
    set_by_clock,
)
from mpwatch.diagnose.analysis.source.lines import mark_words, marks, source_of
from mpwatch.diagnose.analysis.source.loops import (
    draw_loop,
    end_of_loop,
    endless_loop,
    kept_inside,
    loop_around,
    spin,
    way_out,
    why_endless,
)
from mpwatch.diagnose.analysis.source.origins import (
    Parting,
    parting,
    passed_words,
    wait_words,
)
from mpwatch.diagnose.analysis.stack_merge import merge
from mpwatch.diagnose.analysis.stack_patterns import (
    BETWEEN_TWO,
    calls,
    functions_of,
    has_stacks,
    main_shape,
    main_thread,
    user_frame,
)
from mpwatch.diagnose.analysis.throughput.shares import is_at_one_wait
from mpwatch.diagnose.analysis.values import difference
from mpwatch.diagnose.analysis.waits.blockages import usual_pause_s
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.diagnose.analysis.waits.gpu import gpu_wait_s
from mpwatch.diagnose.analysis.waits.servers import KEY
from mpwatch.model.collectives import HABIT
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.source_code import EndlessLoop, Mark, Statement
from mpwatch.model.units import seconds_text
from mpwatch.model.waits import WaitChain, WaitEdge

RULE = "rank-stuck-in-collective"
STANDING_STILL = "standing-still"
JOINING_S = 30.0
LONG_JOINING_S = 120.0
"""Other machines may take minutes to start: before that it is no more than worth knowing."""
CRITICAL_S = 60.0
"""Ranks that have waited for so long for one of which nothing is known have likely stopped."""
MUTUAL_S = 15.0
"""So long without cpu time of all ranks, which wait for each other: none of them will go on."""
SERVES_S = 90.0
"""How long a server may be without a request before the ranks that wait for it count as stuck."""
DRAWN_S, OF_USUAL = 15.0, 5.0
"""So long, and so many times as long as the others had to wait before, no rank draws one item."""
LONG_SLEEP_S = 5.0
"""With so much of a sleep left, a rank is in no loop that polls."""
MAKES_GROUP_S = 12.0
"""All ranks in `new_group`: they exchange some addresses, which takes less than a second."""
WORKING_OVER_S = 6.0
NCCL_S = 60.0
"""Where only NCCL RAS tells of a late rank: until then it is worth knowing, and no more."""
RETAKEN_S = 30.0
"""A stalled process has a new stack after at most so long, unless none can be taken."""
READING_S = 1.0
"""A stall is known to the interval of readings."""
MANY_RANKS = 100_000
"""A WORLD_SIZE above this is not believed."""
_SAME_STEPS = (
    "Give all ranks the same number of steps (drop_last, or the Join context of "
    "DistributedDataParallel)."
)


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each rank that is elsewhere while the others wait in collectives.

    Waiting for the slowest rank for a moment is what collectives do: the others have to be stalled.
    Where all ranks are in the same collective and none makes progress, that is reported as well;
    and where no stack shows a collective, what NCCL says.
    """
    found = [each for ranks in rank_groups(index) for each in _of_ranks(index, ranks)]
    yield from found
    yield from _joining(index)
    late = late_ranks(index)
    if not late and not found:
        yield from _all_on_gpu(index)
    if not late or found or all_on_gpu(index):
        return
    if not any(len(set(apart(index, ranks))) > 1 for ranks in rank_groups(index)):
        yield from (_of_nccl(index, each) for each in late)


def _of_ranks(index: Index, ranks: Sequence[Process]) -> Iterator[Finding]:
    """Yield the finding for ranks that may be in collectives with each other."""
    if not any((standing_s(rank, index) or 0.0) >= STALLED_S for rank in ranks):
        return
    places = {rank.process: place_of(rank, index) for rank in ranks}
    inside = [rank for rank in ranks if places[rank.process] is not None]
    outside = [rank for rank in ranks if places[rank.process] is None]
    late = [rank for rank in outside if not _is_overtaken(rank, index)]
    if any(is_in_backward(rank) and not _is_working(rank, index) for rank in late):
        return  # it waits in the collectives of that, as it has for a moment
    if not all(map(has_stacks, outside)) or (outside and not late):
        return
    if len(inside) < len(late) and not _are_all_stalled(late, index):
        return
    gone = [] if late else _gone(ranks, index)
    if ON_GPU in places.values() and not (gone or _are_known_late(late, index)):
        return  # a training whose steps are long waits for the GPU like that
    waits = sorted(quiet for rank in inside if (quiet := standing_s(rank, index)) is not None)
    woken = strays(len(inside)) if late or gone else 0
    if not waits or len(waits) < len(inside) or waits[woken] < STALLED_S:
        return
    since_s = waits[woken]
    if sum(not is_at_one_wait(index, rank, since_s) for rank in inside) > woken:
        return  # they take steps, too short to be measured
    names = sorted({f"{places[rank.process]}" for rank in inside})
    if late or gone:
        # One whose threads have just woken up for a tick still waits with the others.
        woken_up = [rank for rank in outside if rank not in late and is_in_backward(rank)]
        waiting = inside if names != [BACKWARD] else [*inside, *woken_up]
        told = _finding(
            index, _in_order(waiting, ranks), late or gone, " and ".join(names), since_s
        )
        yield _with_nccl(told, index, ranks)
    elif len(names) == 1 and _is_whole_job(ranks):
        if names[0] in ONE_SIDED:
            yield _with_nccl(_one_sided(inside, names[0], since_s), index, inside)
        elif since_s >= (MAKES_GROUP_S if names[0] == NEW_GROUP else ALL_INSIDE_S):
            yield _with_nccl(_all_inside(index, inside, names[0], since_s), index, inside)


def _in_order(some: Sequence[Process], ranks: Sequence[Process]) -> list[Process]:
    return [rank for rank in ranks if rank in some]


def _are_known_late(late: Sequence[Process], index: Index) -> bool:
    """Whether ranks are known not to come: stalled themselves, or late by what NCCL RAS says."""
    numbers = {number for each in late_ranks(index) for number in each.ranks}
    return bool(late) and all(
        is_stalled(rank, index) or number_of(rank) in numbers for rank in late
    )


def _is_overtaken(rank: Process, index: Index) -> bool:
    """Whether the last stack of a rank is from before it stalled, and a new one is to come.

    It may be in the collective by now: of 64 ranks the last new stack is taken seconds after the
    first, which is that of a rank that waits unlike the others. One that has just woken up for a
    tick may be there as well, if it waits as one does there.
    """
    thread, quiet = main_thread(rank), quiet_s(rank, index) or 0.0
    if thread is None or rank.sample.state in "TtD" or quiet >= RETAKEN_S:
        return False
    if quiet < STALLED_S and (_is_working(rank, index) or not _waits_for_own_lock(thread)):
        return False
    return (thread.stack_age_s or 0.0) > quiet + READING_S


def _waits_for_own_lock(thread: Thread) -> bool:
    """Whether a thread waits as in a collective of gloo: for a condition of its own process."""
    wait = thread.waits_on
    is_futex = wait is not None and wait.kind == "futex" and wait.timeout_s is None
    return is_futex and thread.state == "S"


def _of_nccl(index: Index, late: Late) -> Finding:
    """Put into words for which ranks the others wait, where only NCCL RAS tells.

    A collective of NCCL returns at once, and its ranks wait at any later line that needs the
    result: their stacks do not show it.
    """
    ranks = [p for p in index.snapshot.living() if p.has_nccl and p.role in ("rank", "spawned")]
    many = len(late.ranks) > 1
    it, have = ("they", "have") if many else ("it", "has")
    if late.next_call:
        summary = f"{late.words} {have} launched fewer collectives than the others"
        cause = (
            f"A collective of NCCL ends when all ranks of the communicator have launched it, and "
            f"{late.words} {have} not launched {late.next_call}. The ranks that wait are not the "
            "cause, whichever of them reports a timeout."
        )
        advice = (
            "Look where the rank is, in the log of its machine or with mpwatch dump there: the "
            f"others go on when {it} {have} launched that collective. {_SAME_STEPS}"
        )
    else:
        summary = f"{late.words} {'do' if many else 'does'} not respond to NCCL RAS"
        cause = (
            "RAS has a thread of its own in each process, which responds also while the program "
            "computes or holds the GIL. Possible: the process has ended or is stopped, or its "
            "machine or the network to it has failed."
        )
        advice = (
            "Look whether the process still runs on its machine, at its log and its exit status. "
            "The other ranks cannot finish a collective without it."
        )
    return Finding(
        rule=RULE,
        severity=Severity.WARNING if late.same_s >= NCCL_S else Severity.INFO,
        subject=f"{late.communicator} {late.ranks[0]}",
        summary=summary,
        evidence=(
            *nccl_words(index, index.snapshot.living()),
            *filter(None, [merge(ranks).sentence]),
        ),
        cause=cause,
        advice=advice,
    )


def _with_nccl(finding: Finding, index: Index, ranks: Sequence[Process]) -> Finding:
    """The finding with what NCCL RAS says of its ranks."""
    return replace(finding, evidence=(*finding.evidence, *nccl_words(index, ranks)))


def _all_on_gpu(index: Index) -> Iterator[Finding]:
    """Yield a finding where all ranks wait for the GPU, each at one line, and none was seen late.

    Steps that take nearly all of their time on the GPU look like that from outside. With a hook,
    torch's counts of what was launched and has ended tell whether the ranks go on.
    """
    ranks = all_on_gpu(index)
    waits_s = [gpu_wait_s(rank, index, is_at_one_line=True) or 0.0 for rank in ranks]
    counts = [launched(rank) for rank in ranks]
    known = [each for rank in counts for each in rank.values()]
    since_s = min([*waits_s, *(each.unchanged_s for each in known)], default=0.0)
    if since_s < ON_GPU_S or any(launched_apart(ranks)):
        return
    is_counted = all(counts) and any(each.ended < each.launched for each in known)
    stands = "and what they have launched does not end" if is_counted else "each at one line"
    yield Finding(
        rule=RULE,
        severity=Severity.WARNING if is_counted else Severity.INFO,
        process=ranks[0].process,
        summary=f"all {len(ranks)} ranks have waited for the GPU, {stands}",
        evidence=(
            *(
                f"{called(rank)} has waited for {seconds_text(since_s)} at {called_from(rank)}"
                for rank in ranks[:4]
            ),
            *nccl_words(index, ranks),
        ),
        cause=(
            "A collective of NCCL returns at once and runs on the GPU; a later line that needs a "
            "result waits for it. "
            + (
                "torch has counted no collective that was begun or has ended in this time: most "
                "likely one on the GPU waits for a rank that does not take part in it."
                if is_counted
                else "Either the job stands still in a collective in which not all ranks take "
                "part (NCCL RAS counts neither messages between two ranks nor all_to_all), or each "
                "of its steps waits there for nearly all of its time."
            )
        ),
        advice=(
            ""
            if is_counted
            else "If the job should have logged a step in this time, it stands still: mpwatch "
            "diagnose --hook reads how many collectives each rank has launched. "
        )
        + "Look for a collective or a message that one of the ranks leaves out before the lines "
        "above, also in a backward pass (a part of the model that has no input on one rank).",
    )


ON_GPU_S = 40.0
"""Few kernels take so long, and few programs wait for the GPU at one line alone."""


def _joining(index: Index) -> Iterator[Finding]:
    """Yield a finding for ranks that wait to join the process group."""
    for joining, missing in joining_groups(index):
        since_s = joining_for_s(joining)
        if since_s >= JOINING_S and all(map(has_stacks, missing)):
            if not missing:
                yield _not_complete(index, joining, since_s)
                continue
            severity = Severity.WARNING if since_s >= LONG_JOINING_S else Severity.INFO
            finding = _finding(index, joining, missing, "init_process_group", since_s)
            yield replace(finding, severity=severity)


def _are_all_stalled(late: Sequence[Process], index: Index) -> bool:
    """Whether those that are elsewhere have not moved for long either."""
    return all(is_stalled(rank, index, ALL_STALLED_S) for rank in late)


def _gone(ranks: Sequence[Process], index: Index) -> list[Process]:
    """The ranks of the same parent that have ended, the first of them first."""
    head = family_head(index, ranks[0])
    gone = [
        p
        for p in index.snapshot.processes
        if p.is_gone and p.role == ranks[0].role and has_joined(p) and family_head(index, p) == head
        if not is_of_earlier_attempt(index, p, ranks)
    ]
    gone.sort(key=lambda p: p.ended.at_s if p.ended is not None else 0.0)
    deaths = [death_of(p.ended) for p in gone if p.ended is not None]
    # After a failure the launcher ends the others: they are not what the rest waits for.
    is_shut_down = "shutdown" in deaths and not {"failed", "crash", "killed"}.isdisjoint(deaths)
    return [] if is_shut_down else gone


def _is_whole_job(ranks: Sequence[Process]) -> bool:
    """Whether no rank of the group is on another machine: by torch's recorder or WORLD_SIZE.

    Where neither tells how many there are, by their connections.
    """
    if len(ranks) < 2:
        return False
    sizes = {world_size(rank) for rank in ranks} - {None}
    sizes |= {len(each.ranks) for rank in ranks for each in recorded(rank) if each.ranks}
    if not sizes:
        return _are_connected_only_to_each_other(ranks)
    return max(size or 0 for size in sizes) == len(ranks)


def _are_connected_only_to_each_other(ranks: Sequence[Process]) -> bool:
    """Whether every TCP connection of some ranks has its other end in one of them.

    Each rank of a process group has connections to others of it, and to their store.
    """
    links = [rank.sample.links for rank in ranks]
    ends = {link.channel for each in links for link in each if link.kind == "socket"}
    peers = [[link.other_end for link in each if " > " in (link.address or "")] for each in links]
    return all(each and ends.issuperset(each) for each in peers)


def _finding(
    index: Index,
    inside: Sequence[Process],
    late: Sequence[Process],
    collective: str,
    since_s: float,
) -> Finding:
    """Put into words which ranks are missing, and where they are instead.

    Args:
        index: The job.
        inside: Ranks that wait.
        late: Those that are not there: all alive or all ended.
        collective: What the others wait in.
        since_s: For how long at least.
    """
    alive = [rank for rank in late if rank.ended is None]
    evidence = _places(inside, late, collective, since_s)
    reasons = [_whereabouts(rank, inside, index) for rank in late[:2]]
    usual_s = usual_wait_s(index, inside) if alive else 0.0
    innocent_s = max(HABIT * usual_s, min(each.innocent_s for each in reasons))
    severity = _severity(since_s, innocent_s, reasons, is_any_alive=bool(alive))
    if since_s < HABIT * usual_s:
        evidence.append(f"they have waited for up to {seconds_text(usual_s)} in earlier steps")
    return Finding(
        rule=RULE,
        severity=severity,
        process=late[0].process,
        costs=1.0,
        says_why=any(each.is_in_loop for each in reasons),
        summary=(
            f"{_they_wait(inside)} in {collective} for {all_called(late)}"
            f"{_place_words(late, inside, index)}"
        ),
        evidence=tuple(evidence),
        cause=(
            f"{_end_words(collective)} "
            + " ".join(each.words for each in reasons)
            + ("" if any(each.is_of_all for each in reasons) else _NOT_THEY)
        ),
        advice=" ".join(dict.fromkeys(each.advice for each in reasons)),
        effect_of=next(filter(None, (each.cause for each in reasons)), None),
    )


def _places(
    inside: Sequence[Process], late: Sequence[Process], collective: str, since_s: float
) -> list[str]:
    """Where the ranks are that wait, and those that are missing; arguments as of `_finding`."""
    lines = sorted({line for rank in inside if (line := called_at(rank))})
    at = f", called at {' and '.join(lines[:2])}" if lines else ""
    for_s = f"for at least {seconds_text(since_s)}{at}"
    evidence = [f"{all_called(inside)} in {collective} {for_s}"]
    if collective == ON_GPU:
        evidence = [
            f"{_they_wait(inside)} for the GPU {for_s}: for a collective of NCCL that was launched "
            "before, or for another kernel"
        ]
    elif collective.endswith(OF_NCCL):
        evidence = [f"{_they_wait(inside)} {for_s} for {collective}, which was launched before"]
    alive = [rank for rank in late if rank.ended is None]
    if alive:
        if len(alive) > 1:
            evidence.append(f"not there: {merge(alive).sentence} ({all_called(alive)})")
        else:
            evidence.append(
                f"not there: {called(alive[0])}, {alive[0].doing or called_at(alive[0])}"
            )
    evidence += ended_words(late, 3)
    return [*evidence, *_record_words([*inside[:1], *late[:2]])]


def _severity(
    since_s: float, innocent_s: float, reasons: Sequence[_Whereabouts], *, is_any_alive: bool
) -> Severity:
    """By how long ranks have waited, and whether what they wait for may still come."""
    if since_s < innocent_s:
        return Severity.INFO
    sure_s = min(CRITICAL_S, max(each.certain_s for each in reasons))
    return Severity.CRITICAL if since_s >= sure_s or not is_any_alive else Severity.WARNING


_NOT_THEY = " The ranks that wait are not the cause, whichever of them reports a timeout."


def _end_words(collective: str) -> str:
    """When a collective ends, as a sentence."""
    if collective == ON_GPU or collective.endswith(OF_NCCL):
        return (
            "A collective of NCCL returns at once, runs on the GPU and ends when all ranks have "
            "launched it; the program waits for it at the next line that needs a result."
        )
    # A call keeps its name: `all_reduce`.
    name = capital(collective) if " " in collective else collective
    if collective in BETWEEN_TWO:
        return f"{name} ends when the rank at its other end has sent or received it as well."
    return f"{name} ends when all ranks have entered it."


def _they_wait(ranks: Sequence[Process]) -> str:
    """`rank 0 (300) waits`, `7 ranks wait`."""
    names = called(ranks[0]) if len(ranks) == 1 else f"{len(ranks)} ranks"
    return f"{names} {wait_verb(ranks)}"


def _place_words(late: Sequence[Process], inside: Sequence[Process], index: Index) -> str:
    """Where the one rank is that does not come, as a clause; empty where it is not known."""
    rank = late[0]
    if len(late) > 1 or rank.ended is not None:
        return ""
    if (turns := spin(index, rank)) is not None:
        time = index.lasting(index.snapshot.at_s - turns.since_s)
        return f", which has not left the loop {turns.place} for {time}"
    if _is_working(rank, index) and (found := unfinished_loop(index, rank, inside[0])) is not None:
        time = index.lasting(index.snapshot.at_s - found.since_s)
        return f", which was inside of the loop {found.place} in each of its stacks for {time}"
    line, (what, _) = called_at(rank), _own_wait(rank, index)
    at = f" at {line}" if line else ""
    if what and is_stalled(rank, index):
        return f", which waits for {what}{at}"
    return f", which is{at}" if at else ""


class _Whereabouts(Struct, frozen=True):
    """What keeps a rank from a collective, as far as that was observed."""

    words: str
    advice: str
    innocent_s: float = 0.0
    """Until the others have waited for this long it may be as the program means it."""
    cause: str | None = None
    """The rule whose finding, if there is one, says why it does not come."""
    is_of_all: bool = False
    """Whether the ranks that wait have a part in it."""
    is_in_loop: bool = False
    """Whether it does not leave a loop."""
    certain_s: float = inf
    """Once the others have waited for this long it is certain that the wait does not end."""


def _whereabouts(rank: Process, inside: Sequence[Process], index: Index) -> _Whereabouts:
    """Where a rank is while the others, which are inside of the collective, wait for it."""
    hiding = None
    if rank.ended is None:
        hiding = hiding_clean_up(index, [rank], inside, is_waiting=False)
    found = _seen_at(rank, inside, index, is_left=hiding is None)
    if hiding is None:
        return found
    return replace(
        found, words=f"{found.words} {hiding.cause}", advice=f"{hiding.advice} {found.advice}"
    )


def _seen_at(
    rank: Process, inside: Sequence[Process], index: Index, *, is_left: bool
) -> _Whereabouts:
    """The same by the lines and waits of the ranks.

    Args:
        rank: The rank.
        inside: Those that wait for it.
        index: The snapshot.
        is_left: Whether a function that it has left and the others have not says why.
    """
    line, waiter = called_at(rank), inside[0]
    at = f" at {line}" if line else ""
    known = (
        _ended_or_stopped(rank, at) or _held_up(rank, inside, index) or _in_sleep(rank, at)
    ) or _in_circles(rank, inside, index)
    if known is not None:
        return known
    is_quiet = is_stalled(rank, index) and not _sleeps_in_rounds(rank, index)
    by_clock = _parted_by_clock(rank, waiter, index) if is_quiet else None
    if by_clock is not None:
        return by_clock
    child = _child_at_work(rank, index) if is_quiet else None
    if child is not None:
        return _waits_for_child(rank, child, at)
    block = block_of_one(rank, waiter)
    if block is not None and not is_quiet:
        return _in_block(rank, waiter, block, index)
    left = None
    if is_left and not _is_working(rank, index):
        left = left_function(index, rank, waiter)
    if left is not None and not _are_parted_by_rank(rank, waiter, index):
        return _has_left(rank, waiter, left, index)
    return _quiet(rank, inside, at, index) if is_quiet else _working(rank, waiter, at, index)


def _parted_by_clock(rank: Process, waiter: Process, index: Index) -> _Whereabouts | None:
    """A condition on the time, which each rank asks by itself, that led one into the collective."""
    found = _condition_on_time(waiter, rank, index)
    if found is None:
        return None
    frame, condition = found
    name, line = called(rank), called_at(rank)
    file = frame.file.rpartition("/")[2]
    mark = set_by_clock(index, condition.text)
    asks = "which" if mark is None else f"of what {mark_words(mark)} sets, which"
    return _Whereabouts(
        f"{called(waiter)} is in there by way of `{condition.text}` at {file}:{condition.line} "
        f"{frame.function}, {asks} asks the time. Each rank asks its own clock, and has started to "
        "measure when it was ready itself, so they do not meet that condition in the same step: "
        f"{name} has not met it yet, has gone on{f' to {line}' if line else ''}, and waits there "
        "for ranks that do not come.",
        "Let all ranks decide alike: let one rank look at the clock and broadcast what it decides "
        "(or all_reduce the flag with MAX) in every step, or count steps in place of seconds. A "
        "longer timeout, another backend or a barrier before the collective does not help.",
        is_of_all=True,
    )


def _condition_on_time(
    waiter: Process, rank: Process, index: Index
) -> tuple[Frame, Statement] | None:
    """The condition on the time around a frame of one rank whose function the other is not in."""
    thread, other = main_thread(waiter), main_thread(rank)
    if thread is None or other is None:
        return None
    shared = functions_of(program_frames(other.stack))
    for frame in program_frames(thread.stack):
        line = source_of(index, frame)
        if (frame.file, frame.function) in shared or line is None:
            continue
        for each in (*line.within[::-1], *line.after[::-1]):
            if each.text.startswith(("if ", "elif ")) and asks_the_time(index, each.text):
                return frame, each
    return None


def _in_sleep(rank: Process, at: str) -> _Whereabouts | None:
    """A rank in a sleep that is no poll."""
    left_s = _sleeps_for_s(rank)
    if left_s < LONG_SLEEP_S:
        return None
    return _Whereabouts(
        f"{called(rank)} sleeps{at} and will wake up by itself in {seconds_text(left_s)}.",
        "Nothing is wrong if only this rank is to do that, and it takes less than the timeout "
        f"of the process group. {_SAME_STEPS}",
        innocent_s=WORKING_S,
    )


def _in_circles(rank: Process, inside: Sequence[Process], index: Index) -> _Whereabouts | None:
    """A rank that goes round in a loop without an end.

    A loop that draws until something passes ends within moments, or not at all: it is not meant.
    """
    found = spin(index, rank)
    if found is None:
        return None
    name, time = called(rank), index.lasting(index.snapshot.at_s - found.since_s)
    words = (
        f"{name} has gone round in {found.words} for {time}. {why_endless(found.loop, name)}."
        f"{_loop_origin(index, found.frame, found.loop)}"
    )
    advice = end_of_loop(found.loop, rank, is_draw=found.is_draw)
    if not found.is_draw:
        return _Whereabouts(words, advice, innocent_s=PAUSE_S, is_in_loop=True)
    usual_s = usual_pause_s(index, inside[0])
    return _Whereabouts(
        f"{words} It draws anew in each round, so that where nothing can pass, it draws for ever.",
        f"{advice} A longer timeout, other ranks or a restart do not help: the same case comes "
        "again.",
        innocent_s=max(DRAWN_S, OF_USUAL * usual_s),
        is_in_loop=True,
    )


def _loop_origin(index: Index, frame: Frame, loop: EndlessLoop) -> str:
    """Where the values come from that end a loop, as a sentence after a space."""
    found = (wait_words(index, frame.file, each) for each in (*loop.ends, loop.header))
    words = next(filter(None, found), "")
    return f" As far as names tell, {words}." if words else ""


def _serves(rank: Process, index: Index) -> bool:
    """Whether a rank waits in a loop without an end for the next item of a queue of its own.

    A server that works in several ranks stands so between two requests: one rank takes them, and
    the others wait in the collective by which it hands them on.
    """
    thread = main_thread(rank)
    found = endless_loop(index, thread.stack) if thread is not None else None
    if thread is None or found is None or not calls(own_frames(thread.stack), "queue.py:get"):
        return False
    frame, _ = found
    line = source_of(index, frame)
    return frame == user_frame(thread.stack) and line is not None and ".get(" in line.statement.text


def _quiet(rank: Process, inside: Sequence[Process], at: str, index: Index) -> _Whereabouts:
    """A rank that makes no progress."""
    name, (what, end) = called(rank), _own_wait(rank, index)
    if _serves(rank, index):
        return _Whereabouts(
            f"{name} waits{at} for the next item of a queue, which another thread of it puts, and "
            "hands it on to the others by that collective. If the items are requests from outside, "
            "and none has come, nothing is wrong.",
            f"If requests have come, find out what the thread that puts them does. {_SAME_STEPS}",
            innocent_s=SERVES_S,
        )
    waits = f": it waits for {what}. {end}".rstrip() if what else "."
    branch = _only_branch(rank, inside[0], index)
    by_branch = f" Only {name} is inside of {branch}." if branch else ""
    alike = (
        f"Let all ranks decide alike at {branch} (all_reduce the flag with MAX, or broadcast it), "
        if branch
        else "Let all ranks do so, "
    )
    is_for_all = what.startswith(STORE) and _waits_for_those(rank, what, inside)
    parted = _origin_of_parting(rank, inside[0], index)
    return _Whereabouts(
        f"{name} has made no progress for {index.lasting(quiet_s(rank, index) or 0.0)}{at}{waits}"
        f"{by_branch}{f' {parted.cause}' if parted is not None else ''}",
        f"{alike}or do not wait for the others{at}: the keys that it waits for are set by ranks "
        "that come there as well, and they do not. A longer timeout does not help."
        if is_for_all
        else f"{f'End that wait{at}' if what else f'Find out what {name} waits for{at}'}. What "
        "only one rank does (a checkpoint, a download, a validation) has to end before the timeout "
        "of the process group, and a collective that the others call has to be called by this "
        "rank as well.",
        certain_s=MUTUAL_S if _waits_for_those(rank, what, inside) else inf,
    )


def _origin_of_parting(rank: Process, waiter: Process, index: Index) -> Parting | None:
    """Where the value comes from by which two ranks have parted, as far as stacks show that."""
    mine, its = main_thread(rank), main_thread(waiter)
    if mine is None or its is None:
        return None
    found = parting(index, mine.stack, its.stack)
    return found if found is not None and found.is_sure else None


def _child_at_work(rank: Process, index: Index) -> Process | None:
    """The child that a rank waits for, if that one or a descendant of it does anything."""
    edge = _main_edge(rank, index)
    if edge is None or edge.kind != "child":
        return None
    for child in filter(None, map(index.snapshot.get, edge.providers)):
        if not child.is_gone and not are_stalled(_family(index, child), index):
            return child
    return None


def _family(index: Index, process: Process) -> Iterator[Process]:
    """A process and its descendants."""
    yield process
    for child in children_of(index, process):
        yield from _family(index, child)


def _waits_for_child(rank: Process, child: Process, at: str) -> _Whereabouts:
    """A rank that has left its work to a process of its own, which goes on with it."""
    place = called_at(child)
    return _Whereabouts(
        f"{called(rank)} waits{at} for the exit of {called(child)}, a process that it has started "
        f"and that still works{f', at {place}' if place else ''}.",
        "Nothing is wrong if only this rank is to do that, and it takes less than the timeout of "
        f"the process group. {_SAME_STEPS}",
        innocent_s=WORKING_S,
    )


def _only_branch(rank: Process, waiter: Process, index: Index) -> str:
    """The condition around a rank, in a function that another one is in too, but not under it.

    ``` `if not is_finite(x):` of line 67 in train_epoch() ```; empty where the source shows none.
    """
    mine, its = main_thread(rank), main_thread(waiter)
    if mine is None or its is None:
        return ""
    there = {(each.file, each.function): each for each in program_frames(its.stack)}
    for frame in program_frames(mine.stack):
        other = there.get((frame.file, frame.function))
        line = source_of(index, frame)
        if other is None or line is None:
            continue
        seen = source_of(index, other)
        around = seen.within if seen is not None else line.within
        own = [e for e in line.within if e not in around and _BRANCH.match(e.text)]
        if own:
            return f"`{own[-1].text}` of line {own[-1].line} in {frame.function}()"
    return ""


_BRANCH = re.compile(r"(?:if|elif|else|except|case)\b")


def _waits_for_those(rank: Process, what: str, inside: Sequence[Process]) -> bool:
    """Whether a rank waits for what only the ranks can do that wait for it, all others of the job.

    Neither a background thread of them is at work, nor is there a rank that was not seen.
    """
    return what.startswith((STORE, OTHERS)) and _is_whole_job([*inside, rank])


def _working(rank: Process, waiter: Process, at: str, index: Index) -> _Whereabouts:
    """A rank that computes, or wakes up now and then."""
    name = called(rank)
    if not _is_working(rank, index):
        return _Whereabouts(
            f"{name} has not called it: it was last seen{at or ' elsewhere'}, and wakes up now and"
            " then.",
            "Nothing is wrong if only this rank is to do that, and it takes less than the timeout "
            f"of the process group. If not, find out what {name} waits for{at}.",
            innocent_s=PAUSE_S,
        )
    kept = kept_inside(index, rank)
    if kept is not None:
        time = index.lasting(index.snapshot.at_s - kept.since_s)
        return _Whereabouts(
            f"{name} is still working{at}, and for {time} each of its stacks was inside of "
            f"{kept.words}: {way_out(kept.loop)}. If that is never reached in {name}, because what "
            "it iterates over is empty there, the loop goes round for ever.",
            f"Compare what the ranks get to iterate over there. {end_of_loop(kept.loop, rank)}",
            innocent_s=PAUSE_S,
        )
    loop = unfinished_loop(index, rank, waiter)
    if loop is not None:
        return _in_loop(loop, at, index)
    drawn = draw_loop(index, rank)
    if drawn is not None:
        header = drawn[1].header
        loop_words = f"the loop `{header.text}` of line {header.line}"
        return _Whereabouts(
            f"{name} is still working{at}, in {loop_words}, which draws at random: "
            f"{way_out(drawn[1])}. If it stays there, nothing passes that.",
            end_of_loop(drawn[1], rank, is_draw=True),
            innocent_s=WORKING_S,
            is_in_loop=True,
        )
    return _Whereabouts(
        f"{name} is still working{at}.",
        f"If it is meant to do that alone, set a timeout of the process group that is longer than"
        f" it takes, or share the work between the ranks. {_SAME_STEPS}",
        innocent_s=WORKING_S,
    )


def _in_loop(loop: UnfinishedLoop, at: str, index: Index) -> _Whereabouts:
    """A rank that computes in a loop with a condition and has not left it for long.

    As an exchange may keep a loop going by design, and a call may be one of many, only one call of
    a loop without these is likely not to end.
    """
    name, time = (
        called(loop.process),
        index.lasting(index.snapshot.at_s - loop.since_s),
    )
    values = f" At present {loop.values}." if loop.values else ""
    words = (
        f"{name} computes{at}, and for {time} each of its stacks was inside of the loop "
        f"{loop.place}: {loop.ends}.{values}{_loop_origin(index, loop.frame, loop.loop)}"
    )
    bound = (
        "Bound the loop: count its rounds, and after a limit raise, skip the item, or take what "
        "there is by then; or rule out before it what can never meet its condition."
    )
    look = f"mpwatch dump --locals {loop.process.pid}"
    if not loop.shows_one:
        return _Whereabouts(
            f"{words} These stacks do not show whether that is one call or many. If it is one, the "
            "loop likely does not end with the values that it has there, or takes far longer than "
            "for other items.",
            f"See which: where {look}, called twice, shows the same counters around that call, it "
            f"is one. {bound} If the counters move on, it is a long computation of one rank: share "
            "it between the ranks, or set a timeout of the process group that is longer.",
            innocent_s=WORKING_S,
            is_in_loop=True,
        )
    return _Whereabouts(
        f"{words} {loop.shows_one} Most likely the loop does not end with the values that it has "
        "there, or takes far longer than for other items.",
        f"Look at the values that decide it: {look}. {bound} A longer timeout only helps if the "
        "loop ends.",
        innocent_s=WORKING_S if loop.loop.exchanges else PAUSE_S,
        is_in_loop=True,
    )


def _main_edge(rank: Process, index: Index) -> WaitEdge | None:
    """The wait of the main thread of a rank."""
    thread = main_thread(rank)
    own = (rank.process, thread.tid) if thread is not None else None
    return next((e for e in wait_graph(index).edges if (e.waiter, e.tid) == own), None)


def _own_wait(rank: Process, index: Index) -> tuple[str, str]:
    """What the main thread of a rank waits for, and what would end that; empty where unknown."""
    edge = _main_edge(rank, index)
    if edge is None:
        return "", ""
    ends = (
        chain.conclusion
        for chain in wait_graph(index).chains
        if (chain.links[-1].process, chain.links[-1].tid) == (edge.waiter, edge.tid)
    )
    if edge.what == LOCK_OF_THREADS and _waits_in_torch(rank, index):
        return "a send or receive that another rank has to match", next(ends, "")
    return object_words(edge.kind, edge.what), next(ends, "")


def _waits_in_torch(rank: Process, index: Index) -> bool:
    """Whether a rank waits in native code below a call of `wait()`: locks have frames in Python."""
    thread = main_thread(rank)
    frames = own_frames(thread.stack) if thread is not None else ()
    line = source_of(index, frames[0]) if frames else None
    return line is not None and ".wait(" in line.statement.text


def _held_up(rank: Process, inside: Sequence[Process], index: Index) -> _Whereabouts | None:
    """What a rank waits for that keeps it from the collective, where that is known."""
    name = called(rank)
    chain = _dead_end(rank, inside, index)
    if chain is not None:
        return _Whereabouts(
            f"{name} cannot go on: {chain.sentence}. {chain.conclusion}",
            f"End that wait: as long as it lasts, {name} keeps all ranks waiting.",
            cause=STANDING_STILL,
            certain_s=0.0,
        )
    if main_shape(rank) == "waits-for-batch":
        owned = (
            workers for owner, workers in loader_owners(index) if owner.process == rank.process
        )
        for worker in next(owned, ()):
            found = spin(index, worker) or kept_inside(index, worker)
            if found is not None:
                who, time = (
                    called(worker),
                    index.lasting(index.snapshot.at_s - found.since_s),
                )
                return _Whereabouts(
                    f"{name} waits for a batch of its DataLoader, whose {who} was inside of "
                    f"{found.words} in each of its stacks for {time}. "
                    f"{why_endless(found.loop, who)}.",
                    f"Compare what the ranks and their workers get to iterate over there. "
                    f"{end_of_loop(found.loop, worker)}",
                )
        return _Whereabouts(
            f"{name} waits for a batch of its DataLoader.",
            "Look at the workers of that rank: what they wait for keeps all ranks waiting.",
        )
    return _full_output(rank, index)


def _dead_end(rank: Process, inside: Sequence[Process], index: Index) -> WaitChain | None:
    """The wait of a rank that no process can end, from this rank on.

    `None` where the ranks that wait for it are part of that: they would go on.
    """
    waiting = {each.process for each in inside}
    for chain in wait_graph(index).chains:
        members = [link.process for link in chain.links]
        if chain.verdict not in ("dead-end", "cycle") or rank.process not in members:
            continue
        first = members.index(rank.process)
        cycle = members[chain.cycle_at :] if chain.verdict == "cycle" else []
        if waiting.isdisjoint((*members[first:], *cycle)):
            return replace(chain, links=chain.links[first:])
    return None


def _ended_or_stopped(rank: Process, at: str) -> _Whereabouts | None:
    """What has ended or stopped a rank; `None` for one that could run."""
    name = called(rank)
    if rank.ended is not None:
        if death_of(rank.ended) == "normal":
            return _Whereabouts(
                f"{name} has ended with status 0: it has made fewer calls than the others.",
                _SAME_STEPS,
            )
        return _Whereabouts(
            f"{name} has ended: {rank.ended.words}.",
            "Find out why it ended: its own error is the cause, those of the others follow.",
        )
    if is_stopped(rank.sample.state, main_thread(rank)):
        held = "by a debugger" if rank.sample.state == "t" else "by a signal"
        return _Whereabouts(
            f"{name} is stopped {held}{at}.", f"Continue it: kill -CONT {rank.pid}."
        )
    return None


def _sleeps_in_rounds(rank: Process, index: Index) -> bool:
    """Whether a rank is in a short sleep, in a loop that goes through something.

    The rounds of a `for` come to an end; those of a `while` may wait for what does not come.
    """
    thread = main_thread(rank)
    wait = thread.waits_on if thread is not None else None
    if thread is None or wait is None or wait.kind != "timer":
        return False
    loop = loop_around(index, thread.stack)
    return loop is not None and not loop[1].text.startswith("while ")


def _are_parted_by_rank(rank: Process, waiter: Process, index: Index) -> bool:
    """Whether the source has a condition on the rank that only one of two ranks has met."""
    return guard_on_rank(index, rank) != guard_on_rank(index, waiter)


def _in_block(rank: Process, waiter: Process, block: Frame, index: Index) -> _Whereabouts:
    """A rank that works in a block at whose beginning or end another one waits for it."""
    line, at = source_of(index, block), called_at(rank)
    text = f"`{line.statement.text}`" if line is not None else "the with statement"
    now = f", at {at}" if at else ""
    return _Whereabouts(
        f"{called(rank)} is in the block of {text} ({frame_words(block)}){now}, and "
        f"{called(waiter)} waits where the block begins or ends: such a block lets one rank work "
        "alone while the others wait, as the program means it.",
        "Nothing is wrong as long as that takes less than the timeout of the process group (by "
        "default 10 minutes with NCCL, 30 with gloo). To wait less, share the work between the "
        "ranks.",
        innocent_s=WORKING_S,
    )


def _has_left(rank: Process, waiter: Process, left: LeftFunction, index: Index) -> _Whereabouts:
    """A rank that waits or polls behind a function in which another one still is."""
    name, function, line = called(rank), left.line.function, frame_words(left.line)
    now, quiet = called_at(rank), quiet_s(rank, index) or 0.0
    waits = f"has made no progress for {index.lasting(quiet)}" if quiet >= STALLED_S else "waits"
    if (alone := collective_under_rank(index, left.line)) is not None:
        return _Whereabouts(
            f"{name} is past {function}(), in which {called(waiter)} still is ({line}), and "
            f"{waits} at {now}. Most likely they are one collective apart: {alone.words}. So only "
            "the ranks for which that condition holds enter it, each later collective of theirs "
            "meets another one of the others, and they wait at the end for one that the others "
            "have passed.",
            alone.advice,
            innocent_s=0.0 if quiet >= STALLED_S else PAUSE_S,
        )
    differs, parted = difference(index, (rank, waiter)), _origin_of_parting(rank, waiter, index)
    is_own = parted is not None and parted.origin.kind != "data"
    known = None if differs is None else (differs.cause, differs.advice)
    if parted is not None and is_own:
        if known is None:
            known = parted.cause, parted.advice
        elif parted.statement.text in known[0] and not parted.is_said(known[0]):
            known = f"{known[0]} {parted.cause}", parted.advice
    if known is not None:
        cause, advice = known
        return _Whereabouts(
            f"{name} is past {function}(), in which {called(waiter)} still is ({line}), and {waits}"
            f" at {now}. {cause}{_keys_of_others(rank, index)}",
            advice,
            innocent_s=0.0 if quiet >= STALLED_S else PAUSE_S,
        )
    by_data = f" {parted.cause}" if parted is not None else ""
    return _Whereabouts(
        f"{name} is past {function}(), in which {called(waiter)} still is ({line}), and {waits} at "
        f"{now}.{by_data} Unless {left.past.function}() calls both in one loop, {name} has left "
        f"{function}() by a decision of its own: a stop condition from its own loss or data, fewer "
        "batches, or an exception that was caught. If what it waits for there has to come from "
        "the ranks that wait for it, neither side continues.",
        f"Let all ranks leave {function}() in the same pass: compute what ends its loop ({line}) "
        "from values that all share (all_reduce the loss, or broadcast the flag of rank 0) before "
        f"any rank breaks out of it. {_SAME_STEPS}",
        innocent_s=0.0 if quiet >= STALLED_S else PAUSE_S,
    )


def _keys_of_others(rank: Process, index: Index) -> str:
    """That a rank waits in the store for what those set that wait for it, as a sentence."""
    thread, (what, _) = main_thread(rank), _own_wait(rank, index)
    frame = user_frame(thread.stack) if thread is not None else None
    line = source_of(index, frame) if frame is not None else None
    own = functions_of(program_frames(thread.stack)) if thread is not None else ()
    if line is None or not what.startswith((STORE, KEY)):
        return ""
    ways = [each for each in line.ended_by if (each.file, each.function) in own]
    if not ways:
        return ""
    file = ways[0].file.rpartition("/")[2]
    return (
        f" Most likely {called(rank)} waits for keys that each rank sets only once it "
        f"comes there as well (`{ways[0].statement.text}`, {file}:{ways[0].statement.line}), so "
        "that neither side goes on."
    )


def _full_output(rank: Process, index: Index) -> _Whereabouts | None:
    """A rank that writes to its output, a full pipe that the process at the other end leaves so."""
    thread = main_thread(rank)
    wait = thread.waits_on if thread is not None else None
    pipes = channels_among(wait.targets) if wait is not None and wait.kind == "pipe-write" else ()
    stream = output_of(rank, pipes[0]) if pipes else ""
    if not stream or not is_stalled(rank, index):
        return None
    held = pipe_ends(index).readers.get(pipes[0], ())
    found = (index.snapshot.get(each) for each in held)
    readers = [p for p in found if p is not None and p.process != rank.process and not p.is_gone]
    launcher = [p for p in readers if p.role not in ("rank", "spawned")] or readers
    name, line = called(rank), called_at(rank)
    at = f" at {line}" if line else ""
    whose = "that a process outside of this job would have to read"
    if launcher:
        reader, place = launcher[0], called_at(launcher[0])
        whose = f"which {called(reader)} has to read and does not{f', at {place}' if place else ''}"
    return _Whereabouts(
        f"{name} is blocked writing to its {stream}{at}: that is a full pipe, {whose}.",
        "Read the output of the ranks as long as they run (a thread for each, or communicate()), "
        "or let them write to files (stdout=open(...)), or inherit the launcher's output: a pipe "
        "holds 64 KiB, and what is written after that waits until it is read. Fewer log lines "
        "only delay it.",
    )


def _sleeps_for_s(rank: Process) -> float:
    """How much of its sleep is left, where the system call of its main thread shows it."""
    thread = main_thread(rank)
    wait = thread.waits_on if thread is not None else None
    return (wait.timeout_s or 0.0) if wait is not None and wait.kind == "timer" else 0.0


def _is_working(rank: Process, index: Index) -> bool:
    """Whether a rank uses the cpu, over the last seconds or, if that is not known, just now."""
    percent = mean_cpu_percent(rank, index.history, WORKING_OVER_S)
    if percent is None:
        thread = main_thread(rank)
        return thread is not None and thread.state == "R"
    return percent >= WORKING_PERCENT


def _record_words(ranks: Sequence[Process]) -> list[str]:
    """What torch has recorded of each rank, newest collectives of at most two groups."""
    return [
        f"recorded by {called(rank)}: {each.words}"
        for rank in ranks
        for each in sorted(recorded(rank), key=lambda each: not each.is_unfinished)[:2]
    ]


def _all_inside(
    index: Index, inside: Sequence[Process], collective: str, since_s: float
) -> Finding:
    """The finding that all ranks of a job are in one collective that does not end."""
    lines = sorted({line for rank in inside if (line := called_at(rank))})
    evidence = [f"{all_called(inside)} in {collective} for at least {seconds_text(since_s)}"]
    evidence += [f"called at {' and '.join(lines[:3])}"] if lines else []
    if collective == NEW_GROUP:
        return _all_make_groups(inside, evidence)
    differs = difference(index, inside)
    apart = groups_apart(index, inside)
    if apart is not None and apart.is_recorded:
        return Finding(
            rule=RULE,
            severity=Severity.CRITICAL,
            process=inside[0].process,
            summary=(
                f"all {len(inside)} ranks are in {collective}, in different process groups, and "
                "none of them makes progress"
            ),
            evidence=(*evidence, *_record_words(inside[:3])),
            cause=apart.cause,
            advice=apart.advice,
        )
    chosen = chosen_root(index, inside)
    is_read = chosen is not None and bool(chosen.evidence)
    evidence += [chosen.evidence] if chosen is not None and is_read else []
    known = differs if differs is not None and not is_read else chosen
    skipped = _skipped(index, inside, collective) if known is None else None
    if skipped is not None:
        evidence += [skipped.evidence] if skipped.evidence else []
    told = known or skipped
    passed = "" if told is not None else _passed_words(index, inside)
    at_different_lines = len(lines) > 1
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL if since_s >= PAUSE_S or is_read else Severity.WARNING,
        process=inside[0].process,
        summary=(
            f"all {len(inside)} ranks are in {collective}"
            f"{', in which they name different ranks' if is_read else ''}, and none of them "
            "makes progress"
        ),
        evidence=(*evidence, *_record_words(inside[:3])),
        cause=(
            f"All ranks of the job have called {collective}, and no data moves between them. "
            + (told.cause if told is not None else passed or _why_not(at_different_lines))
        ),
        advice=told.advice if told is not None else _COMPARE_GROUPS,
    )


def _skipped(index: Index, ranks: Sequence[Process], collective: str) -> PassedOver | None:
    """That ranks in one collective may be there for different elements of the program."""
    found = passed_over(index, ranks)
    if found is None and collective == BACKWARD:
        return passed_over_in_forward(index, ranks)
    return found


def _passed_words(index: Index, ranks: Sequence[Process]) -> str:
    """That the ranks most likely pass different values to one call; empty if that is not known."""
    thread = main_thread(ranks[0])
    frame = user_frame(thread.stack) if thread is not None else None
    return passed_words(index, frame) if frame is not None else ""


_COMPARE_GROUPS = (
    "Compare the stacks of the ranks and the groups they pass. TORCH_DISTRIBUTED_DEBUG=DETAIL "
    "checks each call and names the first difference, at a cost in speed."
)


def _why_not(at_different_lines: bool) -> str:
    """Why ranks in one collective may not meet there, where nothing more is known."""
    if at_different_lines:
        return "They called it at different lines, so it may not be the same call for all."
    return (
        "Possible: the calls belong to different process groups, or the ranks have made a "
        "different number of calls; or the network between them fails."
    )


def _all_make_groups(inside: Sequence[Process], evidence: Sequence[str]) -> Finding:
    """The finding that all ranks of a job are in `new_group`, and do not meet there.

    Ranks meet under the name of the group, which contains how many groups the process has made
    before (`_process_group_name` of torch 2.1 to 2.14).
    """
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=inside[0].process,
        summary=f"all {len(inside)} ranks are in new_group, and do not meet there",
        evidence=(*evidence, *_record_words(inside[:3])),
        cause=(
            "new_group ends when all ranks of the job have called it for the same group. torch "
            "numbers the groups in each process, and ranks that have made a different number of "
            "groups before wait for each other under different names. Most likely an earlier "
            "new_group was called by some of the ranks only, or the ranks make their groups in a "
            "different order."
        ),
        advice=(
            "Call new_group on all ranks, in the same order and equally often, also on those that "
            "are not part of the new group. Look for a call inside a branch on the rank."
        ),
    )


def _one_sided(inside: Sequence[Process], call: str, since_s: float) -> Finding:
    """The finding that all ranks send and none receives, or the other way round."""
    paths = sorted({path for rank in inside if (path := called_from(rank))})
    other = "recv" if call == "send" else "send"
    evidence = [f"{all_called(inside)} in {call} for at least {seconds_text(since_s)}"]
    evidence += [f"called at {path}" for path in paths[:3]]
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=inside[0].process,
        summary=f"all {len(inside)} ranks are in {call}, and none of them is in {other}",
        evidence=(*evidence, *_record_words(inside[:3])),
        cause=(
            f"{call} returns when another rank has called {other}, and all ranks of the job are in "
            f"{call}: none of them gets to its {other}."
        ),
        advice=(
            "Let the ranks of even number send first and the others receive first, or use isend "
            "and irecv, or batch_isend_irecv, and wait for both afterwards."
        ),
    )


def _is_on_one_machine(rank: Process) -> bool:
    """Whether the ranks meet at an address that no other machine reaches."""
    address = rank.sample.environment.get("MASTER_ADDR", "")
    return address in ("localhost", "::1") or address.startswith("127.")


def _absent_ranks(ranks: Sequence[Process]) -> str:
    """`rank 2 of 3`: the numbers of which no rank was seen; empty where these are not known."""
    total, numbers = world_size(ranks[0]), {rank.sample.rank for rank in ranks}
    if total is None or None in numbers or total > MANY_RANKS:
        return ""
    absent = [f"{number}" for number in range(total) if number not in numbers]
    if not absent:
        return ""
    return f"rank{'s' if len(absent) > 1 else ''} {names_text(absent, 4)} of {total}"


def _own_rendezvous(index: Index, ranks: Sequence[Process]) -> Mark | None:
    """The statement by which each of some ranks has chosen for itself where they meet."""
    threads = [main_thread(rank) for rank in ranks]
    stacks = [program_frames(each.stack) if each is not None else [] for each in threads]
    found = marks(index, "own-rendezvous") if len(ranks) > 1 and all(stacks) else ()
    lines = [source_of(index, stack[0]) for stack in stacks] if found else []
    for mark in found:
        is_run = all(
            any(
                (each.file, each.function) == (mark.file, mark.function)
                and each.line >= mark.statement.line
                for each in stack
            )
            for stack in stacks
        )
        is_used = all(
            line is not None
            and (
                line.statement == mark.statement or not _MEETS_ELSEWHERE.search(line.statement.text)
            )
            for line in lines
        )
        if is_run and is_used:
            return mark
    return None


_MEETS_ELSEWHERE = re.compile(r"\bstore=|\binit_method=(?!.?env://)|://(?<!env://)")


def _meet_nowhere(
    ranks: Sequence[Process], chosen: Mark, severity: Severity, evidence: Sequence[str]
) -> Finding:
    """The finding that each rank waits for the others where it has chosen itself."""
    return Finding(
        rule=RULE,
        severity=severity,
        process=ranks[0].process,
        summary=(
            f"{_they_wait(ranks)} in init_process_group, each where it has chosen itself to meet "
            "the others"
        ),
        evidence=tuple(evidence),
        cause=(
            "Ranks meet at one address, port or file. Each of these has run "
            f"{mark_words(chosen)} itself, which takes it from {chosen.about}: that is another "
            "one in each process, so that none meets another."
        ),
        advice=(
            "Choose it once, before the ranks are started, and give it to all of them: in the "
            "process that starts them (as an argument, or in os.environ), or by the launcher. "
            f"torchrun sets MASTER_ADDR and MASTER_PORT: leave out `{chosen.statement.text}` "
            "there. A longer timeout does not help."
        ),
    )


def _not_complete(index: Index, ranks: Sequence[Process], since_s: float) -> Finding:
    """The finding that all ranks of this job wait for more of them than there are."""
    first = ranks[0]
    is_local = _is_on_one_machine(first)
    absent = _absent_ranks(ranks)
    severities = (Severity.INFO, Severity.WARNING, Severity.CRITICAL)
    severity = severities[(since_s >= LONG_JOINING_S) + is_local]
    asked = [
        f"{name} is {value}"
        for name in ("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
        if (value := first.sample.environment.get(name)) is not None
    ]
    evidence = [
        f"{all_called(ranks)} in init_process_group for at least {seconds_text(since_s)}",
        f"{merge(ranks).sentence}",
    ]
    if asked:
        evidence.append(f"in the environment of {called(first)}: {', '.join(asked)}")
    chosen = _own_rendezvous(index, ranks)
    if chosen is not None:
        return _meet_nowhere(ranks, chosen, severity, evidence)
    return Finding(
        rule=RULE,
        severity=severity,
        process=first.process,
        summary=(
            f"{_they_wait(ranks)} in init_process_group for "
            f"{absent or 'others that have not joined'}"
        ),
        evidence=tuple(evidence),
        cause=(
            "A process group is made when world_size ranks have joined. All that were started here "
            "are there: "
            + (
                "their MASTER_ADDR is this machine alone, so the others have to be started here as "
                "well, or world_size counts more than there are."
                if is_local
                else "those of another machine are late or not started, world_size counts more "
                "than there are, or some of them wait at another address, port or file."
            )
        ),
        advice=(
            "Compare world_size with the number of ranks started on all machines, and the rank of "
            "each: all of 0 to world_size - 1 have to be there, each once. MASTER_ADDR and "
            "MASTER_PORT, or init_method, have to be the same for all, and the port open."
        ),
    )
