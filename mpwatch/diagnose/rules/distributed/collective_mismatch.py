"""Ranks are in different collectives at the same time."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from mpwatch.describe.frames import (
    at_frame,
    frame_words,
    is_library,
    own_frames,
    program_frames,
)
from mpwatch.describe.processes import wait_verb
from mpwatch.diagnose.analysis.distributed.clean_up import HidingCleanUp, hiding_clean_up
from mpwatch.diagnose.analysis.distributed.flight_recorder import (
    COMPARE_CALLS,
    DIFFERENT_SHAPES,
    ONE_SHAPE,
    SAME_SHAPES,
    SURE_S,
    WAIT_FOR_TIMEOUT,
    launched_apart,
    number_of,
    unfinished,
)
from mpwatch.diagnose.analysis.distributed.nccl_words import late_ranks, nccl_words
from mpwatch.diagnose.analysis.distributed.passed_over import passed_over
from mpwatch.diagnose.analysis.distributed.rank_exits import (
    aborted_in_collective,
    earlier_attempt,
    last_place,
    ranks_beside,
)
from mpwatch.diagnose.analysis.distributed.ranks import (
    ALL_INSIDE_S,
    BACKWARD,
    NEW_GROUP,
    OF_ALL,
    OF_NCCL,
    LeftFunction,
    all_on_gpu,
    apart,
    apart_s,
    called_at,
    called_from,
    groups_apart,
    left_function,
    rank_groups,
    returns_at_once,
)
from mpwatch.diagnose.analysis.distributed.unfinished_loops import REPEATS_NOT
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.mechanisms.cases import ended_words
from mpwatch.diagnose.analysis.mechanisms.rank_cycles import (
    OTHER_ORDER,
    SHOWS_ORDER,
    are_forks,
)
from mpwatch.diagnose.analysis.process_queries import all_called, called, family_head
from mpwatch.diagnose.analysis.source.branches import (
    BatchRounds,
    begun_again,
    branch_of_one_side,
    caught_behind,
    collective_under_rank,
    ends_by_clock,
    graph_left,
    guard_on_rank,
    loop_ends,
    passed_loop,
    round_ahead,
    rounds_of_batch,
    set_by_clock,
    uneven_draw,
)
from mpwatch.diagnose.analysis.source.lines import is_in_loop, mark_words, marks, source_of
from mpwatch.diagnose.analysis.source.origins import parting, told_of
from mpwatch.diagnose.analysis.stack_merge import merge
from mpwatch.diagnose.analysis.stack_patterns import (
    BUFFERS,
    calls,
    collective_of,
    main_thread,
    outermost_first,
    user_frame,
)
from mpwatch.diagnose.analysis.values import (
    BEGIN_ALIKE,
    difference,
    same_round,
    whole_numbers,
)
from mpwatch.model.collectives import Recorded
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.source_code import Caught, Mark, Statement
from mpwatch.model.units import seconds_text

RULE = "collective-mismatch"
IN_THREADS_S = 20.0
"""No rank works, and two threads of one wait: a slow network moves some data in this time."""
FEW_SETS = 3
"""With more of them in the files that were read, one in another file than the loop says little."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding where ranks are blocked in different collectives.

    Ranks are in different collectives for a moment between two steps; that is not reported. Nor is
    it where another rank is in no collective: those of several groups may all wait for that one.
    """
    are_apart = False
    for ranks in rank_groups(index):
        if (by_threads := _by_two_threads(ranks)) is not None:
            are_apart = True
            yield by_threads
            continue
        places = list(apart(index, ranks))
        if not places:
            continue
        since_s = apart_s(index, ranks)
        groups: defaultdict[str, list[Process]] = defaultdict(list)
        distinguished = _distinguished(ranks, places)
        for rank, place in zip(ranks, distinguished, strict=True):
            groups[place].append(rank)
        if len(groups) > 1:
            are_apart = True
            found = _finding(index, groups, since_s)
            yield replace(found, evidence=(*found.evidence, *nccl_words(index, ranks)))
    if not are_apart:
        yield from _on_gpu(index)
    yield from _aborted(index)


class _Inside(Struct, frozen=True):
    """A thread that waits in a collective."""

    thread: Thread
    collective: str
    still_s: float


def _inside(rank: Process) -> list[_Inside]:
    """The threads of a rank that wait in a collective, as their stacks show; main first."""
    main = main_thread(rank)
    found = [
        _Inside(each, collective, each.still_s or 0.0)
        for each in rank.threads
        if (collective := collective_of(own_frames(each.stack))) is not None
    ]
    return sorted(found, key=lambda each: each.thread is not main)


def _by_two_threads(ranks: Sequence[Process]) -> Finding | None:
    """The finding that two threads of a rank wait in collectives, and no rank does anything else.

    Nothing orders what two threads of a rank call. torch pairs the calls of a process group by
    their order on each rank, so that one rank may be first where another one is second.
    """
    found = [(rank, _inside(rank)) for rank in ranks]
    if len(ranks) < 2 or any(
        not threads or threads[0].thread is not main_thread(rank) for rank, threads in found
    ):
        return None
    two = [(rank, threads) for rank, threads in found if len(threads) > 1]
    since_s = min(each.still_s for _, threads in found for each in threads)
    if len(two) < 2 or since_s < IN_THREADS_S:
        return None
    inside = [rank for rank, _ in two]
    main, other, *_ = two[0][1]
    places = [
        f"{each.collective}{at_frame(user_frame(each.thread.stack))}" for each in (main, other)
    ]
    name = other.thread.name
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL if since_s >= SURE_S else Severity.WARNING,
        process=inside[0].process,
        others=tuple(rank.process for rank in inside[1:]),
        subject="threads",
        summary=(
            f"two threads of {all_called(inside)} wait in collectives: the main thread in "
            f"{places[0]}, and {name} in {places[1]}"
        ),
        evidence=(
            f"no rank does anything else, for at least {seconds_text(since_s)}",
            *(
                f"{called(rank)}: "
                + " and ".join(f"{each.thread.name} in {each.collective}" for each in threads)
                for rank, threads in found
            ),
        ),
        cause=(
            "A process group pairs the collectives of its ranks in the order in which each rank "
            "calls them, and nothing orders the calls of two threads. Most likely both use one "
            f"process group, and one rank was first in {main.collective} where another one was "
            f"first in {other.collective}: each waits for a call that the others make second. "
            f"{WAIT_FOR_TIMEOUT}"
        ),
        advice=(
            f"Give {name} a process group of its own, made once by all ranks "
            "(torch.distributed.new_group), and pass it to its collectives; or let the main thread "
            "wait for it (join, result()) before it calls the next collective. A longer timeout or "
            "another barrier does not help."
        ),
    )


def _on_gpu(index: Index) -> Iterator[Finding]:
    """Yield a finding where all ranks wait for the GPU and differ in what they have launched.

    One that has launched fewer and waits itself waits in a collective that the others are not in.
    """
    ranks = all_on_gpu(index)
    differing = [late for late in late_ranks(index) if late.next_call] if ranks else []
    for late in differing:
        behind = [rank for rank in ranks if number_of(rank) in late.ranks]
        others = [rank for rank in ranks if rank not in behind]
        sides = ((late.next_call, others), ("its own wait for the GPU", behind))
        branched = _branched(index, sides, ()) if behind and others else None
        cause, advice = branched or (_LAUNCHES_DIFFER, _FIND_CALL)
        yield Finding(
            rule=RULE,
            severity=Severity.CRITICAL if late.same_s >= SURE_S else Severity.WARNING,
            subject=late.communicator,
            summary=(
                f"all {len(ranks)} ranks wait for the GPU, and {late.words} "
                f"{'have' if len(late.ranks) > 1 else 'has'} not launched {late.next_call} as the "
                "others have"
            ),
            evidence=(*nccl_words(index, ranks), *filter(None, [merge(ranks).sentence])),
            cause=f"{cause} {WAIT_FOR_TIMEOUT}",
            advice=advice,
        )
    if not differing:
        yield from _counted_apart(index, ranks)


_LAUNCHES_DIFFER = (
    "The collectives of a communicator run on the GPU in the order in which each rank launches "
    "them, and the order has to be the same on all ranks. Each rank waits for the others in "
    "another one."
)
_FIND_CALL = (
    "Look for a collective that only some of the ranks call: inside a branch on the rank, in one "
    "more step, or in code for the main rank alone. Call it on all ranks, or on none. "
    "TORCH_DISTRIBUTED_DEBUG=DETAIL checks each call and names the first difference, at a cost in "
    "speed."
)


def _counted_apart(index: Index, ranks: Sequence[Process]) -> Iterator[Finding]:
    """Yield a finding where torch has counted more launches of a group on some ranks.

    NCCL RAS does not count messages between two ranks, of which an all_to_all consists. A rank
    waits for others where all that they have launched has ended, and what it has launched since
    has not.
    """
    for parted in launched_apart(ranks):
        if parted.unchanged_s < ALL_INSIDE_S:
            continue
        group, least = parted.group, parted.least
        pairs = list(zip(ranks, parted.counts, strict=True))
        most = max(each.launched for each in parted.counts)
        behind = [rank for rank, each in pairs if each.launched == least]
        waiting = [rank for rank, each in pairs if each.launched > least]
        cause, advice = _fewer_launched(index, behind, waiting, least)
        words = ", ".join(
            f"{called(rank)} {each.launched} ({each.ended} of them have ended)"
            for rank, each in pairs[:8]
        )
        yield Finding(
            rule=RULE,
            severity=Severity.CRITICAL,
            process=behind[0].process,
            summary=(
                f"all {len(ranks)} ranks wait for the GPU, and {all_called(behind)} "
                f"{_have(behind)} launched {least} collectives of group {group}, "
                f"{all_called(waiting)} {most - least} more"
            ),
            evidence=(
                f"collectives of group {group} that torch has counted: {words}; unchanged for "
                f"{seconds_text(parted.unchanged_s)}",
                *filter(None, [merge(ranks).sentence]),
            ),
            cause=f"{cause} {WAIT_FOR_TIMEOUT}",
            advice=advice,
        )


def _fewer_launched(
    index: Index, behind: Sequence[Process], waiting: Sequence[Process], least: int
) -> tuple[str, str]:
    """Cause and advice where some ranks have launched fewer collectives of a group."""
    what = (
        f"{all_called(waiting)} {wait_verb(waiting)} for collective {least + 1} of the group, "
        f"which {all_called(behind)} {_have(behind)} not launched and {_have(behind)} gone on "
        "without it. The lines above are those at which the ranks need a result, not those of the "
        "calls."
    )
    found = _no_graph(index)
    if found is None:
        return f"{what} {_LAUNCHES_DIFFER}", _FIND_CALL
    cause, advice = found
    return f"{what} Most likely in the backward pass: {cause}", advice


def _no_graph(index: Index) -> tuple[str, str] | None:
    """Why a rank leaves out a part of the backward pass, if the source shows it, and the fix."""
    cut = graph_left(index)
    if cut is None:
        return None
    condition, _, line = cut.about.rpartition(" in line ")
    return (
        f"{mark_words(cut)}, under `{condition}` in line {line}, returns a tensor that is made "
        "anew and not part of the graph, so that a rank which meets that condition runs no "
        "backward pass of what comes before it, and leaves out the collectives there; the others "
        "call them.",
        f"Let all ranks run the same backward pass: in place of `{cut.statement.text}`, return the "
        "empty input itself, or a result that depends on it and on the parameters, so that the "
        "collectives of the backward pass are called on every rank. A longer timeout or "
        "find_unused_parameters does not help.",
    )


def _aborted(index: Index) -> Iterator[Finding]:
    """Yield a finding for the first rank of each parent that was aborted in a collective."""
    seen: list[Process | None] = []
    for process in index.snapshot.processes:
        if aborted_in_collective(index, process):
            head = family_head(index, process)
            if head in seen:
                continue
            seen.append(head)
            ranks = [process, *ranks_beside(index, process)]
            yield Finding(
                rule=RULE,
                severity=Severity.CRITICAL,
                process=process.process,
                summary=f"{called(process)} was aborted (SIGABRT) during a collective of the ranks",
                evidence=tuple(_last_words(rank) for rank in ranks[:8]),
                cause=(
                    "Native code of the collective called abort(). Gloo does that to a rank that "
                    "receives more bytes than its own tensor holds: likely the ranks gave tensors "
                    "of a different size or type to one collective, or called different ones. The "
                    "reason is on the standard error of that rank."
                ),
                advice=(
                    "Compare the calls at the lines above and the shapes of their tensors: pad or "
                    "drop a last batch that is smaller. TORCH_DISTRIBUTED_DEBUG=DETAIL compares "
                    "shapes before each collective and raises an error instead, at a cost in speed."
                ),
            )


def _last_words(rank: Process) -> str:
    """Where a rank was last seen, and how it ended."""
    place, line = last_place(rank), called_at(rank)
    seen = " ".join(filter(None, (place and f"in {place}", line and f"at {line}")))
    ended = f"ended: {rank.ended.words}" if rank.ended is not None else "still runs"
    return f"{called(rank)} {ended}" + (f"; last seen {seen}" if seen else "")


def _distinguished(ranks: Sequence[Process], places: list[str]) -> list[str]:
    """The places of the ranks; where the function is the same, by what torch has recorded.

    Only a difference that keeps all of them waiting is reported: another group of which they all
    are part, or another operation, shape or type as the same collective of one group.
    """
    if len(set(places)) > 1:
        return places
    found = [unfinished(rank) for rank in ranks]
    known = [each for each in found if each is not None]
    if len(known) < len(ranks):
        return places
    numbers = {number_of(rank) for rank in ranks}
    if len({each.group for each in known}) > 1:
        if all(each.ranks is not None and numbers <= each.ranks for each in known):
            return [f"{p} of group {each.group}" for p, each in zip(places, known, strict=True)]
        return places
    if len({each.number for each in known}) > 1:
        return places
    if len({each.operation for each in known}) > 1:
        return [each.operation for each in known]
    has_one_shape = known[0].operation in ONE_SHAPE
    if has_one_shape and len({(each.sizes, each.types) for each in known}) > 1:
        return [f"{p} of {each.types} {each.sizes}" for p, each in zip(places, known, strict=True)]
    return places


def _finding(index: Index, groups: Mapping[str, list[Process]], since_s: float) -> Finding:
    """The finding."""
    by_call = sorted(groups.items(), key=lambda item: -len(item[1]))
    odd = by_call[-1][1][0]
    evidence = []
    for name, group in by_call:
        path = called_from(group[0])
        for_s = f"for at least {seconds_text(since_s)}"
        if name.endswith(OF_NCCL):
            at = f" at {path}" if path else ""
            evidence.append(
                f"{all_called(group)} {wait_verb(group)}{at} {for_s} for {name}, which was "
                "launched before and which the others have not launched"
            )
            continue
        at = f", called at {path}" if path else ""
        evidence.append(f"{all_called(group)} in {name} {for_s}{at}")
    records = [(group, each) for _, group in by_call if (each := unfinished(group[0])) is not None]
    evidence += [f"recorded by {all_called(group)}: {each.words}" for group, each in records]
    if BACKWARD in groups:
        evidence += _batches(index, [rank for _, group in by_call for rank in group])
    ranks = [rank for _, group in by_call for rank in group]
    differs = difference(index, ranks)
    are_messages = _MESSAGES.issuperset(groups)
    ordered = _in_another_order(index, by_call)
    is_other = are_messages or BUFFERS in groups or ordered is not None
    guarded = None if is_other else _guarded(index, by_call)
    known = [each for _, each in records]
    closed = guarded or ordered
    why = _Explained(*closed) if closed is not None else _explained(index, by_call, known)
    if differs is not None:
        evidence.append(differs.evidence)
        if guarded is None:
            why = _Explained(differs.cause, differs.advice, is_of_values=True)
    cause, advice, *_ = why if are_messages else _with_origin(index, by_call, why)
    return Finding(
        rule=RULE,
        severity=Severity.CRITICAL,
        process=odd.process,
        summary=(
            "ranks wait for each other in messages that do not match: "
            if are_messages
            else "ranks wait for each other in different collectives: "
        )
        + ", ".join(f"{len(group)} in {name}" for name, group in by_call),
        evidence=tuple(evidence),
        cause=f"{cause} {WAIT_FOR_TIMEOUT}",
        advice=advice,
    )


def _batches(index: Index, ranks: Sequence[Process]) -> list[str]:
    """How many batches each rank has had, where hooks have counted them and they differ."""
    totals = {
        each.process: each.total
        for each in index.snapshot.progress
        if each.kind == "batches" and not each.is_cut
    }
    counts = {called(rank): totals[rank.process] for rank in ranks if rank.process in totals}
    if len(counts) < len(ranks) or len(set(counts.values())) < 2:
        return []
    had = ", ".join(f"{name} {count}" for name, count in counts.items())
    return [f"batches that the ranks have had from DataLoaders: {had}"]


_NO_SKIPPED_BACKWARD = (
    " A rank that skips a batch (continue, nothing to learn from it, a NaN) must not skip its "
    "backward pass: let it run on a loss of zero that uses the outputs (outputs.sum() * 0)."
)


class _Explained(NamedTuple):
    """Why ranks are in different collectives."""

    cause: str
    advice: str
    is_open: bool = False
    """Whether it does not say why a condition was not the same for all of them."""
    is_of_values: bool = False
    """Whether it says by what values, and not where these come from."""


def _with_origin(
    index: Index, by_call: Sequence[tuple[str, list[Process]]], why: _Explained
) -> _Explained:
    """The same with where the value comes from by which the ranks have parted.

    Its fix takes the place of one that knows less, but for the data of a rank, of which the line
    in a loop says more.
    """
    if not (why.is_open or why.is_of_values):
        return why
    found = parting(index, _stack(by_call[0][1][0]), _stack(by_call[-1][1][0]))
    if found is None:
        return _with_resumed(index, by_call, why)
    if found.is_said(why.cause):
        return why
    if why.is_of_values and found.statement.text not in why.cause:
        return why
    advice = why.advice
    is_general = advice == COMPARE_CALLS
    if why.is_open and not found.is_sure:
        advice = f"{advice} If it was `{found.statement.text}`: {found.advice}"
    elif why.is_open and (found.origin.kind != "data" or is_general):
        advice = found.advice
    return why._replace(cause=f"{why.cause} {found.cause}", advice=advice)


def _with_resumed(
    index: Index, by_call: Sequence[tuple[str, list[Process]]], why: _Explained
) -> _Explained:
    """The same with that each rank may have resumed a state of its own, where the source shows it.

    Only of ranks that are in one loop: in different rounds of it they come to different calls.
    """
    found = marks(index, "resumes-alone")
    stacks = [_stack(ranks[0]) for _, ranks in by_call]
    if len(found) != 1 or not why.is_open or not _are_in_one_loop(index, stacks):
        return why
    return why._replace(
        cause=f"{why.cause} Possible: {mark_words(found[0])} loads on each rank what that rank has "
        "found itself, and no rank tells the others which state that is. Ranks that have resumed "
        "different ones are in different rounds of the loop at the same time, and those that are "
        "ahead come to another collective.",
        advice=f"{BEGIN_ALIKE} Each rank's log shows what it has resumed. If it is the same: "
        f"{why.advice[:1].lower()}{why.advice[1:]}",
    )


def _are_in_one_loop(index: Index, stacks: Sequence[Sequence[Frame]]) -> bool:
    """Whether threads are in one loop of a function in which all of them are."""
    loops = [
        {
            (frame.file, header)
            for frame in own_frames(stack)
            if not is_library(frame) and (line := source_of(index, frame)) is not None
            for header in line.within
            if is_in_loop((header,))
        }
        for stack in stacks
    ]
    return bool(loops) and bool(set.intersection(*loops))


def _explained(
    index: Index, by_call: Sequence[tuple[str, list[Process]]], records: Sequence[Recorded]
) -> _Explained:
    """Cause and advice, as far as it is known what differs, and whether a clean-up hides it."""
    hiding = _in_clean_up(index, by_call)
    if hiding is not None and hiding.is_by_exception:
        return _Explained(hiding.cause, hiding.advice)
    why = _by_places(index, by_call, records)
    if hiding is None:
        return _with_handler(index, by_call, why)
    if not why.is_open:
        return why._replace(
            cause=f"{why.cause} {hiding.cause}", advice=f"{why.advice} {hiding.advice}"
        )
    other = f"If it was none: {why.advice[:1].lower()}{why.advice[1:]}"
    return why._replace(cause=hiding.cause, advice=f"{hiding.advice} {other}")


def _in_clean_up(
    index: Index, by_call: Sequence[tuple[str, list[Process]]]
) -> HidingCleanUp | None:
    """That the ranks in one of the collectives are in a clean-up, and the others in its block."""
    for name, group in reversed(by_call):
        others = [rank for other, ranks in by_call if other != name for rank in ranks]
        found = hiding_clean_up(index, group, others, is_waiting=True)
        if found is not None:
            return found
    return None


def _by_places(
    index: Index, by_call: Sequence[tuple[str, list[Process]]], records: Sequence[Recorded]
) -> _Explained:
    """Cause and advice by the collectives and lines at which the ranks are."""
    places = dict(by_call)
    unequal = (
        (_unmatched(by_call) if _MESSAGES.issuperset(places) else None)
        or _in_handler(index, by_call)
        or _after_swallowed(index, by_call)
        or _block_again(index, by_call)
        or _by_own_batch(index, by_call)
        or _resumed_apart(index, by_call, is_seen=True)
        or _unequal_loop(index, by_call)
    )
    if unequal is not None:
        return _Explained(*unequal)
    if (without := _without_graph(index, by_call)) is not None:
        return _Explained(*without)
    if BACKWARD in places:
        return _Explained(*_one_in_backward(index, by_call, records), is_open=True)
    if BUFFERS in places:
        return _Explained(*_one_in_forward(by_call))
    if NEW_GROUP in places:
        return _Explained(*_one_makes_group(by_call))
    if len({each.group for each in records}) > 1:
        ranks = [rank for _, group in by_call for rank in group]
        by_groups = groups_apart(index, ranks)
        if by_groups is not None:
            return _Explained(by_groups.cause, by_groups.advice, is_open=True)
        return _Explained(
            "The ranks are part of both process groups and use them in a different order.",
            "Call the collectives of several groups in the same order on all ranks.",
            is_open=True,
        )
    if len(records) > 1 and len({each.operation for each in records}) == 1:
        ranks = [rank for _, group in by_call for rank in group]
        skipped = passed_over(index, ranks)
        if skipped is None:
            return _Explained(DIFFERENT_SHAPES, SAME_SHAPES)
        return _Explained(f"{DIFFERENT_SHAPES} {skipped.cause}", skipped.advice)
    branched = _branched(index, by_call, records) or _after_a_round(index, by_call)
    if branched is not None:
        return _Explained(*branched, is_open=True)
    why, left = _why_different(by_call, records), _left_early(index, by_call)
    if left is None or left.is_open:
        resumed = _resumed_apart(index, by_call, is_seen=False)
        if resumed is not None:
            return _Explained(*resumed)
    if left is None:
        before = _launched_before(index, by_call)
        if before is not None:
            return _Explained(*before)
        return _Explained(why, COMPARE_CALLS, is_open=True)
    if left.is_known:
        return _Explained(left.cause, left.advice)
    is_open = not left.is_under_rank
    return _Explained(f"{left.cause} {why}", f"{left.advice} {COMPARE_CALLS}", is_open)


def _without_graph(
    index: Index, by_call: Sequence[tuple[str, list[Process]]]
) -> tuple[str, str] | None:
    """Cause and advice where some ranks are in a backward() of the program and others behind it."""
    inside = [rank for _, ranks in by_call for rank in ranks if _is_in_own_backward(rank)]
    others = [rank for _, ranks in by_call for rank in ranks if rank not in inside]
    found = _no_graph(index) if inside and others else None
    if found is None:
        return None
    cause, advice = found
    return (
        f"{all_called(inside)} {_are(inside)} still in the backward pass, which "
        f"{all_called(others)} {_have(others)} left. Most likely {cause}",
        advice,
    )


def _is_in_own_backward(rank: Process) -> bool:
    """Whether a rank is in the backward() of an autograd function that the program defines."""
    return any(frame.function.rpartition(".")[2] == "backward" for frame in outermost_first(rank))


def _launched_before(
    index: Index, by_call: Sequence[tuple[str, list[Process]]]
) -> tuple[str, str] | None:
    """Cause and advice where the source has few lines that can have launched what a rank waits for.

    The line at which that rank waits is a later one, which needs a result of the GPU.
    """
    of_nccl = [each for each in by_call if each[0].endswith(OF_NCCL)]
    if len(of_nccl) != 1:
        return None
    name, waiting = of_nccl[0]
    words = re.findall(r"[A-Z][a-z]+", name.partition(" ")[0])
    operation = "_".join(words).lower()
    calls = {
        (each.file, each.statement.line): each
        for each in marks(index, "collective")
        if operation and each.about.partition("_into")[0].removesuffix("_tensor") == operation
    }
    others = [rank for other, ranks in by_call if other != name for rank in ranks]
    if not 0 < len(calls) <= FEW_LINES:
        return None
    lines = " or ".join(mark_words(each) for each in calls.values())
    cause = (
        f"{all_called(waiting)} {_have(waiting)} launched {name}, which {all_called(others)} "
        f"{_have(others)} not launched: as far as the source shows, by {lines}. The lines at "
        "which the ranks wait now come later."
    )
    scaled = next((e for e in marks(index, "backward") if _SCALED.search(e.statement.text)), None)
    if scaled is None:
        return (
            f"{cause} What decides whether that is called was not the same on all ranks (a "
            "counter or a flag of each rank, its data, or the rank itself).",
            f"Compare what decides that {operation} is called there: let it be what all ranks "
            "count alike (the number of the iteration), or decide on one rank and broadcast it. "
            "A longer timeout does not help.",
        )
    return (
        f"{cause} Possible: {mark_words(scaled)} scales the loss, and a GradScaler leaves out "
        "optimizer.step() on a rank whose gradients are not finite, on that rank alone. If the "
        "call is below optimizer.step(), or depends on a counter of its calls, that rank leaves it "
        "out, or makes it in another iteration.",
        "Let no collective depend on how often optimizer.step() was run: decide by the number of "
        "the iteration, which all ranks share, and call it outside of step(); or all_reduce the "
        "scaler's found_inf (with MAX) so that all ranks skip a step together. The scale of each "
        "rank (scaler.get_scale()) shows which one has skipped steps. A longer timeout does not "
        "help.",
    )


FEW_LINES = 2
"""With more lines that call one operation, or conditions under which a key is added, the source
does not show which of them it was."""
_SCALED = re.compile(r"\b\w*scaler\w*\.scale\(", re.IGNORECASE)


_MESSAGES = frozenset(("send", "recv"))
"""Each is a call of two ranks, for one message."""


def _unmatched(by_call: Sequence[tuple[str, list[Process]]]) -> tuple[str, str]:
    """Cause and advice where all ranks send or receive, and no message arrives."""
    sides = " and ".join(f"{all_called(ranks)} {_are(ranks)} in {name}" for name, ranks in by_call)
    return (
        "A send ends when its receiver takes that message, and a recv when the one that it waits "
        f"for has come: both have to name each other, with the same tag and group. {sides}, so "
        "none of the messages that are sent is one that is waited for: another tag, another peer, "
        "another order, or one more than the other side expects.",
        "Print peer, tag and number of each message on both sides and compare the first that "
        "differ. Go through the messages in one fixed order on both sides (a list, sorted()), and "
        "let one side send while the other receives.",
    )


def _in_another_order(
    index: Index, by_call: Sequence[tuple[str, list[Process]]]
) -> tuple[str, str] | None:
    """Cause and advice where ranks communicate in a loop, and the program goes through a set.

    Not of ranks that are forks of one process: texts have the same hashes in all of them.
    """
    ranks = [rank for _, group in by_call for rank in group]
    if are_forks(ranks):
        return None
    loops = [_loop_over_things(index, group[0]) for _, group in by_call]
    first = loops[0]
    if first is None or len({each and each[1].text for each in loops}) > 1:
        return None
    frame, header = first
    sets = marks(index, "set-order")
    near = [each for each in sets if _goes_over(frame, header, each)]
    if not near and len({(each.file, each.statement) for each in sets}) > FEW_SETS:
        return None
    mark = next(iter(near or [each for each in sets if each.file != frame.file]), None)
    if mark is None:
        return None
    return (
        f"The ranks are in different rounds of the loop `{header.text}` of line {header.line} "
        f"({frame_words(frame)}), whose order {'most likely comes' if near else 'may come'} from a "
        f"set: {mark_words(mark)} goes through the set {mark.about}. {OTHER_ORDER}, so each rank "
        "takes the elements in an order of its own.",
        f"Go through a fixed order there: sorted({mark.about}), or a list or the keys of a dict "
        f"in place of the set. {SHOWS_ORDER} A longer timeout or another backend does not help.",
    )


def _loop_over_things(index: Index, rank: Process) -> tuple[Frame, Statement] | None:
    """The innermost `for` loop around a call of a rank that does not count, and its frame."""
    for frame in own_frames(_stack(rank)):
        line = None if is_library(frame) else source_of(index, frame)
        loops = [each for each in line.within if each.text.startswith("for ")] if line else []
        if loops:
            return None if " in range(" in loops[-1].text else (frame, loops[-1])
    return None


def _goes_over(frame: Frame, header: Statement, mark: Mark) -> bool:
    """Whether a loop goes over a set, or over what a function of its file makes of one."""
    if mark.file != frame.file:
        return False
    over = header.text.partition(" in ")[2]
    return header.line == mark.statement.line or mark.function in re.findall(r"\w+", over)


def _in_handler(
    index: Index, by_call: Sequence[tuple[str, list[Process]]]
) -> tuple[str, str] | None:
    """Cause and advice where a rank is in an `except` clause, in which the others are not."""
    clauses = {name: _clause(index, group[0]) for name, group in by_call}
    for name, group in reversed(by_call):
        clause = clauses[name]
        if clause is None or any(other == clause for n, other in clauses.items() if n != name):
            continue
        frame, header = clause
        others = [rank for other, ranks in by_call if other != name for rank in ranks]
        into = next(each for each, _ in by_call if each != name)
        return (
            f"{all_called(group)} {_are(group)} in {name} in the handler `{header.text}` of line "
            f"{header.line} ({frame_words(frame)}): an exception was raised on "
            f"{'that rank' if len(group) == 1 else 'those ranks'} alone, and has skipped the "
            f"collectives after the line that raised it. {all_called(others)} had none, and "
            f"{'waits' if len(others) == 1 else 'wait'} in {into}.",
            "Call no collective in a handler that only some ranks enter, and do not skip one there "
            "(a backward pass of DistributedDataParallel is one): let all ranks agree first "
            "whether one of them has failed (all_reduce of a flag, with MAX, after each step), and "
            "then skip it on all. Or avoid what raises (a smaller or cut batch, where memory is "
            "short), or let the exception end the job.",
        )
    return None


def _after_swallowed(
    index: Index, by_call: Sequence[tuple[str, list[Process]]]
) -> tuple[str, str] | None:
    """Cause and advice where some ranks are in a `try` block that others have left in its loop.

    Its handler catches what any of them raises there, and goes on with the next round.
    """
    if len(by_call) != 2:
        return None
    for (name, inside), (other, left) in (by_call, by_call[::-1]):
        theirs = {(each.file, each.function): each.line for each in own_frames(_stack(left[0]))}
        for mark in marks(index, "swallows"):
            first, last = map(int, mark.about.split("-"))
            lines = [
                each.line
                for each in own_frames(_stack(inside[0]))
                if (each.file, each.function) == (mark.file, mark.function)
            ]
            line = theirs.get((mark.file, mark.function))
            if line is None or first <= line <= last or not lines:
                continue
            if not first <= lines[0] <= last:
                continue
            where = "behind it" if line > last else "in a later round of its loop"
            return (
                f"{all_called(inside)} {_are(inside)} in {name}, called in the `try` block of "
                f"lines {first} to {last} of {mark.function}(); {all_called(left)} {_have(left)} "
                f"left that block, and {'waits' if len(left) == 1 else 'wait'} for {other} "
                f"{where}. Most likely an exception there: {mark_words(mark)} "
                f"catches it on {'that rank' if len(left) == 1 else 'those ranks'} alone, and goes "
                "on as if the others had failed as well.",
                "Let all ranks learn that one has failed before they go on: after each round "
                "all_reduce a flag (with MAX), and skip or end it on all; or let the exception end "
                "the rank, so that the others get an error. Its message is in the log of "
                f"{all_called(left)}: check what only that rank gets (a part of the data that is "
                "empty, a chunk fewer than there are ranks). A longer timeout does not help.",
            )
    return None


def _block_again(
    index: Index, by_call: Sequence[tuple[str, list[Process]]]
) -> tuple[str, str] | None:
    """Cause and advice where a rank repeats a `try` block in which the others are further on.

    They can have passed the collective in which it is only together with it, and nothing but an
    exception leads from there to the beginning, as far as no loop or condition in the block does.
    """
    if len(by_call) != 2:
        return None
    for (name, again), (other, on) in (by_call, by_call[::-1]):
        if name.partition("_into")[0] not in OF_ALL or returns_at_once(index, again[0]):
            continue
        for mark in marks(index, "retries"):
            found = [_parted_in(index, mark, again[0], each) for each in on]
            places = [each for each in found if each is not None]
            if len(places) < len(on) or any(
                _parted_in(index, mark, e, on[0]) is None for e in again
            ):
                continue
            mine, its = places[0]
            first, last = mark.about.split("-")
            return (
                f"{all_called(again)} {_are(again)} in {name} at {frame_words(mine)}, and "
                f"{all_called(on)} {_have(on)} gone on to {other} at {frame_words(its)}, all in "
                f"the `try` block of lines {first} to {last} of {mark.function}(), which a loop "
                f"repeats once {mark_words(mark)} has caught an exception. {all_called(on)} can "
                f"have passed {frame_words(mine)} only together with {all_called(again)}, which "
                f"{_have(again)} therefore been there before and begun that block anew: most "
                "likely an "
                f"exception was raised and caught on {all_called(again)} alone, between these "
                f"lines, so that {'it calls' if len(again) == 1 else 'they call'} {name} a second "
                f"time, while the others had none and wait in {other}.",
                "Let all ranks decide together whether to repeat: catch the exception around the "
                "part without collectives, all_reduce a flag (with MAX) on every rank, also on "
                "those without an exception, and repeat on all of them if one had it. Or keep the "
                "collectives out of what is repeated. What was raised is in the log of "
                f"{all_called(again)}, if the handler logs it. To make it rarer (a smaller batch, "
                "more memory), a barrier or a longer timeout does not help.",
            )
    return None


def _rows(caught: Caught) -> str:
    is_one = caught.first == caught.last
    return f"line {caught.first}" if is_one else f"lines {caught.first} to {caught.last}"


class _CaughtAlone(NamedTuple):
    """That some ranks may have left a `try` block by an exception, and what to do then."""

    where: str
    """Where they and the others are."""
    cause: str
    advice: str
    loop: str
    """A loop in the block that they may have ended in place of that; empty for none."""
    is_likely: bool
    """Whether that loop is none over all data of a rank, or of all steps, and no condition in the
    block leads past the line of the others."""


_OF_ALL_STEPS = re.compile(
    r"`(?:async )?(?:while .*|for .*(?:loader|data|sampler|stream|epoch|step|batches).*)`"
)


def _with_handler(
    index: Index, by_call: Sequence[tuple[str, list[Process]]], why: _Explained
) -> _Explained:
    """The same with that an exception may have led behind a handler, where the source shows one."""
    found = None if "exception" in why.cause else _past_a_handler(index, by_call)
    if found is None:
        return why
    if not found.loop and found.is_likely:
        return _Explained(f"{found.where} Most likely {found.cause}.", found.advice)
    if why.is_open and found.is_likely:
        return _Explained(
            f"{found.where} Most likely {found.cause}. Else {found.loop} has ended earlier there "
            "than on the others.",
            f"{found.advice} If nothing was caught: let {found.loop} have the same number of "
            "rounds on all ranks.",
        )
    return why._replace(
        cause=f"{why.cause} Also possible: {found.cause}.",
        advice=f"{why.advice} If an exception was caught: {found.advice}",
    )


def _past_a_handler(
    index: Index, by_call: Sequence[tuple[str, list[Process]]]
) -> _CaughtAlone | None:
    """That ranks are behind a `try` statement in whose block others still are.

    Its handler catches what is raised in the block and goes on, with the same calls as without an
    exception. Nothing tells that from an earlier end of a loop in the block, where there is one.
    """
    if len(by_call) != 2:
        return None
    for (name, inside), (other, ahead) in (by_call, by_call[::-1]):
        found = caught_behind(index, _stack(inside[0]), _stack(ahead[0]))
        if found is None:
            continue
        catches, log, alone = found.caught.header, found.caught.log, all_called(ahead)
        before = "the backward pass" if name == BACKWARD else name
        logged = f" and logs it (`{log.text}`, line {log.line})" if log is not None else ""
        look = "" if log is not None else f" (log it in line {catches.line})"
        return _CaughtAlone(
            f"{all_called(inside)} {_are(inside)} in {name} in the `try` block of "
            f"{_rows(found.caught)} ({frame_words(found.inside)}), and "
            f"{alone} {_have(ahead)} gone on behind it to {other}, at {frame_words(found.past)}.",
            f"an exception was raised in that block on {alone} alone, `{catches.text}` of line "
            f"{catches.line} ({frame_words(found.inside)}) has caught it{logged}, and the rest of "
            f"the block was left out there, with {before}, for which the others wait",
            f"Look in the log of {alone} for what was caught{look}, and let all ranks agree on "
            f"whether one of them has failed before any of them calls {before}: leave in the "
            "`try` block only what may fail, such as the forward pass, all_reduce a flag (with "
            "MAX) after it on every rank, and call the rest on all of them or on none. To make it "
            "rarer (smaller batches, more memory), or a longer timeout, does not help.",
            found.loop,
            _OF_ALL_STEPS.search(found.loop) is None and not found.has_branch,
        )
    return None


def _parted_in(
    index: Index, mark: Mark, behind: Process, ahead: Process
) -> tuple[Frame, Frame] | None:
    """Where two ranks are in a block, in the innermost function down to which both are the same.

    `None` where the first is not at an earlier line, or where a loop or a condition of the block is
    around one of them.
    """
    first, last = map(int, mark.about.split("-"))
    is_inside = False
    for mine, its in zip(outermost_first(behind), outermost_first(ahead), strict=False):
        if (mine.file, mine.function) != (its.file, its.function):
            return None
        lines = source_of(index, mine), source_of(index, its)
        is_block = (mine.file, mine.function) == (mark.file, mark.function)
        if is_block:
            is_inside = first <= mine.line <= last and first <= its.line <= last
        elif not is_inside:
            if mine.line != its.line:
                return None
            continue
        from_line = first if is_block else 0
        if not is_inside or any(
            line is None or any(each.line >= from_line for each in line.within) for line in lines
        ):
            return None
        if mine.line != its.line:
            after = lines[1].after if lines[1] is not None else ()
            is_skipped = any(mine.line < each.line for each in after)
            return None if is_skipped or mine.line > its.line else (mine, its)
    return None


def _resumed_apart(
    index: Index, by_call: Sequence[tuple[str, list[Process]]], *, is_seen: bool
) -> tuple[str, str] | None:
    """Cause and advice of ranks that are in a loop which each of them has resumed alone.

    Most likely where those before them were seen to end, as some of these may have saved more than
    others. Not where what the loop begins with was read, and is the same.

    Args:
        index: The snapshot.
        by_call: The ranks in each collective.
        is_seen: Only where ranks were seen to end before these were started.
    """
    ranks = [rank for _, group in by_call for rank in group]
    before = ended_words(earlier_attempt(index, ranks), 3)
    if is_seen and not before:
        return None
    for mark in marks(index, "restores-start"):
        first, function, name = mark.about.split(", ", 2)
        frames = [_frame_in(rank, mark.file, function) for rank in ranks]
        lines = [source_of(index, each) if each is not None else None for each in frames]
        headers = [
            next((e for e in line.within if f"{e.line}" == first), None) if line else None
            for line in lines
        ]
        places = {each.line for each in frames if each is not None}
        if headers[0] is None or None in headers or len(places) < 2 or frames[0] is None:
            continue
        if whole_numbers(index, ranks, frames[0], name):
            continue
        return (
            f"All ranks are in the loop `{headers[0].text}` of line {first} in {function}(), which "
            f"begins with {name}, and at different lines of it. {mark_words(mark)} sets that by "
            "what each rank has found or loaded itself, and shares it with no other rank. "
            + (
                f"These ranks were started in place of others that have ended ({'; '.join(before)})"
                ": most likely some had saved more than others then, and the ranks have gone on "
                if before
                else "If they have resumed what was saved before, most likely they have gone on "
            )
            + "from different rounds: those that are ahead come to another collective.",
            f"Compare {name} on all ranks, as each logs it. {BEGIN_ALIKE} If it is the same: "
            f"{COMPARE_CALLS[:1].lower()}{COMPARE_CALLS[1:]}",
        )
    return None


def _frame_in(rank: Process, file: str, function: str) -> Frame | None:
    """The innermost frame of a rank in a function of a file."""
    found = (each for each in own_frames(_stack(rank)) if each.file == file)
    return next((each for each in found if each.function == function), None)


def _clause(index: Index, rank: Process) -> tuple[Frame, Statement] | None:
    """The innermost `except` clause in which a rank is: the frame that is in it, and its header."""
    for frame in own_frames(_stack(rank)):
        line = None if is_library(frame) else source_of(index, frame)
        headers = [each for each in line.within if each.text.startswith("except")] if line else []
        if headers:
            return frame, headers[-1]
    return None


def _after_a_loop(
    index: Index, by_call: Sequence[tuple[str, list[Process]]]
) -> tuple[str, str] | None:
    """Cause and advice where some ranks have ended a loop in which the others still are.

    Not where a rank is under a condition on its number, which decides more surely.
    """
    if len(by_call) != 2:
        return None
    is_launched = any(name.endswith(OF_NCCL) for name, _ in by_call)
    for (name, inside), (other, ahead) in (by_call, by_call[::-1]):
        ended = _ended_loop(index, ahead[0], inside[0], functions=is_launched)
        if ended is None or not ended.words.startswith("the loop"):
            continue
        if not is_launched and _is_under_rank(index, ahead[0], inside[0]):
            continue
        by = f", most likely by {ended.by}" if ended.by else ", most likely after fewer rounds"
        launched = "which was launched in that loop" if is_launched else "which it calls"
        return (
            f"{all_called(ahead)} {_have(ahead)} ended {ended.words}, in which "
            f"{all_called(inside)} still {_are(inside)}{by}. {all_called(inside)} "
            f"{'waits' if len(inside) == 1 else 'wait'} for {name}, {launched}, and "
            f"{all_called(ahead)} for {other}, which comes after it.",
            ("" if is_launched else _ONCE_AFTER.format(name=name))
            + "Let all ranks do the same number of rounds: give each the same number of batches (a "
            "DistributedSampler with drop_last, a fixed number of steps for data that is streamed, "
            "or the Join context of DistributedDataParallel), or let all of them stop as soon as "
            "one has none left (all_reduce of a flag, with MAX, in each round). A longer timeout "
            "does not help.",
        )
    return None


def _after_a_round(
    index: Index, by_call: Sequence[tuple[str, list[Process]]]
) -> tuple[str, str] | None:
    """Cause and advice where ranks have ended a loop in which the others still are."""
    return _after_a_loop(index, by_call) or _in_next_round(index, by_call)


def _in_next_round(
    index: Index, by_call: Sequence[tuple[str, list[Process]]]
) -> tuple[str, str] | None:
    """Cause and advice where ranks have left a loop, and begun the next round of one around it."""
    if len(by_call) != 2:
        return None
    for (name, first), (other, behind) in (by_call, by_call[::-1]):
        found = round_ahead(index, _stack(first[0]), _stack(behind[0]))
        if found is None or _is_by_library(first[0], found.call):
            continue
        function, ends = found.inside.function, loop_ends(index, found.inside)
        is_while = found.loop.text.startswith("while ")
        is_tested = is_while and found.loop.text not in ("while True:", "while 1:")
        by = " or ".join([*(["its condition"] if is_tested else []), *([ends] if ends else [])])
        by = f"by {by}" if by else "after fewer rounds"
        them = all_called(behind)
        tests = ends or (f"`{found.loop.text}`" if is_tested else "what it goes over")
        return (
            f"{all_called(first)} {_have(first)} left the loop `{found.loop.text}` of line "
            f"{found.loop.line} in {function}(), in which {them} still "
            f"{'calls' if len(behind) == 1 else 'call'} {other}, and {_have(first)} come to the "
            f"next round of `{found.header.text}` of line {found.header.line} in "
            f"{found.around.function}(): to {name} at {frame_words(found.call)}, which each of its "
            f"rounds calls, so that {them} {_have(behind)} passed it before. Most likely the inner "
            f"loop has ended earlier on {all_called(first)}, {by}.",
            f"Let all ranks decide alike when the loop of {function}() ends: compute {tests} from "
            "values that all ranks share, or decide on one rank and broadcast the decision "
            "(broadcast, or all_reduce with MAX) in each round, before any rank leaves the loop. A "
            "barrier or a longer timeout does not help.",
        )
    return None


def _is_by_library(rank: Process, call: Frame) -> bool:
    """Whether a library, which may do so only now and then, leads from a line to the program."""
    frames = own_frames(_stack(rank))
    below = frames[: frames.index(call)]
    innermost = next((n for n, each in enumerate(below) if not is_library(each)), len(below))
    return any(is_library(e) and e.function not in REPEATS_NOT for e in below[innermost:])


_ONCE_AFTER = (
    "If that {name} only adds up numbers (a metric, a count), add them up on each rank in the loop "
    "and reduce the sums once after it, so that the number of rounds does not matter. Else: "
)


def _is_under_rank(index: Index, ahead: Process, inside: Process) -> bool:
    """Whether one of two ranks is under a condition on the rank."""
    if any(guard_on_rank(index, each) is not None for each in (ahead, inside)):
        return True
    frame = user_frame(_stack(inside))
    return frame is not None and collective_under_rank(index, frame) is not None


def _by_own_batch(
    index: Index, by_call: Sequence[tuple[str, list[Process]]]
) -> tuple[str, str] | None:
    """Cause and advice where ranks are in a loop over what their own batch contains.

    The others have ended it: each of its rounds has a collective, and they had fewer of them.
    """
    for name, group in by_call:
        rounds = rounds_of_batch(index, _stack(group[0]))
        others = [rank for other, ranks in by_call if other != name for rank in ranks]
        if (
            name == NEW_GROUP
            or rounds is None
            or any(_is_within(index, each, rounds) for each in others)
        ):
            continue
        ended = [e for rank in others if (e := _ended_loop(index, rank, group[0])) and not e.by]
        if len(ended) < len(others):
            continue
        other = next(each for each, _ in by_call if each != name)
        calls = _calls_of(name, rounds)
        made = f": `{rounds.made}` of line {rounds.made_at}"
        return (
            f"{all_called(group)} {'waits' if len(group) == 1 else 'wait'} for {name} in a round "
            f"of `{rounds.header.text}` of line {rounds.header.line}, and {all_called(others)} "
            f"{_have(others)} ended {ended[0].words} and "
            f"{'waits' if len(others) == 1 else 'wait'} for {other}. What that loop goes over is "
            "selected from the batch, of which each rank has another one"
            f"{made if rounds.made_at != rounds.header.line else ''}. So most likely the ranks ran "
            f"different numbers of {calls.several} for the same number of batches. Each is a "
            "collective that all ranks have to enter: a rank that had fewer of them goes on, and "
            "the others wait for it. Until then the ranks have averaged or combined what belongs "
            "to different batches.",
            f"{calls.once} Or give the loop the same number of rounds on all ranks: a fixed list "
            f"({calls.empty} for what a batch does not have), or the largest number of all ranks "
            "(all_reduce with MAX before the loop). drop_last, set_epoch(), a barrier after the "
            "loop or a longer timeout do not help.",
        )
    return None


class _CallsOf(Struct, frozen=True):
    """The collective of a loop, in the words of an advice."""

    several: str
    once: str
    """How to have one in place of one in each round."""
    empty: str
    """What a rank without an element is to do in its place."""


def _calls_of(name: str, rounds: BatchRounds) -> _CallsOf:
    is_launched = name.endswith(OF_NCCL)
    if name in (BACKWARD, BUFFERS) or (is_launched and rounds.runs_backward):
        return _CallsOf(
            "forward passes" if name == BUFFERS else "backward passes",
            "Run one backward pass for each batch: add up the losses in the loop, and call "
            "backward() and step() after it.",
            "with a loss of zero that uses the outputs, outputs.sum() * 0,",
        )
    return _CallsOf(
        "collectives" if is_launched else f"calls of {name}",
        "Add up the values in the loop, and communicate once for each batch after it.",
        "with zeros",
    )


def _is_within(index: Index, rank: Process, rounds: BatchRounds) -> bool:
    """Whether a rank is in a round of the same loop."""
    other = rounds_of_batch(index, _stack(rank))
    return other is not None and other.header == rounds.header


_OVER_OWN = re.compile(
    r"^(?:async )?for .+ in "
    r"(?:(?:sorted|list|tuple|set)\((?!range)[\w.]+(?:\.(?:items|keys|values)\(\))?\)"
    r"|[\w.]+\.(?:items|keys|values)\(\)|[\w.]+):"
)
"""A loop over what a variable holds; not over a range, a loader, or what a model has."""
_ALIKE = re.compile(
    r"loader|data|param|buffer|module|model|layer|block|stage|group|batch|range|bucket"
)


def _unequal_loop(
    index: Index, by_call: Sequence[tuple[str, list[Process]]]
) -> tuple[str, str] | None:
    """Cause and advice where a rank calls a collective for each element of what it has itself.

    The others have left that function: theirs had fewer elements, or none.
    """
    for name, group in by_call:
        frame = user_frame(_stack(group[0]))
        if frame is None or name in (BACKWARD, BUFFERS, NEW_GROUP):
            continue
        others = [rank for other, ranks in by_call if other != name for rank in ranks]
        line = source_of(index, frame)
        loops = [each for each in line.within if _OVER_OWN.match(each.text)] if line else []
        is_own = bool(loops) and not _ALIKE.search(loops[-1].text.lower())
        theirs = [(each.file, each.function) for rank in others for each in _stack(rank)]
        if not is_own or (frame.file, frame.function) in theirs:
            continue
        if guard_on_rank(index, group[0]) is not None:
            continue
        loop = f"`{loops[-1].text}` of line {loops[-1].line}"
        why, advice = _different_keys(index, name)
        return (
            f"{all_called(group)} {_are(group)} in {name} at {frame_words(frame)}, which {loop} "
            f"calls once for each element, and {all_called(others)} {_have(others)} left "
            f"{frame.function}() or not come to it. Likely the ranks go through different numbers "
            f"of elements there, as each has its own{why}",
            advice,
        )
    return None


def _different_keys(index: Index, name: str) -> tuple[str, str]:
    """Why ranks may have different numbers of elements in what they go through, and what to do."""
    optional = marks(index, "optional-key")
    if 0 < len({each.about for each in optional}) <= FEW_LINES:
        first = optional[0]
        condition, _, line = first.about.rpartition(" in line ")
        beside = [each for each in optional[1:] if each.about == first.about]
        others = [mark_words(each) for each in beside[:FEW_LINES]]
        more = f" (so does {' and '.join(others)})" if others else ""
        return (
            f": most likely {mark_words(first)}{more} adds a key only under `{condition}` of line "
            f"{line}, which the data of one rank may meet and those of another not. The rank with "
            f"fewer keys goes on, and the others wait in the {name} of the keys that it has not; "
            "or the calls of different keys have met each other.",
            "Set each key on all ranks: where there is nothing to compute, to zero by what the "
            "model has given (outputs.sum() * 0), so that the backward pass is the same as well. "
            "Or reduce one tensor that holds all keys in a fixed order. To leave out such samples "
            "only hides it; a longer timeout, find_unused_parameters or another backend does not "
            "help.",
        )
    empty = next(iter(marks(index, "empty-on-ranks")), None)
    why = (
        "."
        if empty is None
        else f", and some have none. {mark_words(empty)}, under "
        f"`{empty.about.partition(' in line ')[0]}`, gives an empty result on some ranks and more "
        "on others, which may be what it goes through."
    )
    return (
        why,
        "Let all ranks go through the same keys: send what one rank has to the others first "
        "(broadcast_object_list), or reduce one tensor that holds all. Or let the one rank that "
        f"has the values use them without {name}. A longer timeout or another backend does not "
        "help.",
    )


def _fresh_loss(index: Index, others: Sequence[Process]) -> tuple[str, str] | None:
    """Cause and advice where the source makes a loss under a condition that no parameter is in."""
    found = marks(index, "fresh-loss")
    if not found:
        return None
    condition, _, line = found[0].about.rpartition(" in line ")
    depend = "depends" if len(others) == 1 else "depend"
    return (
        f"Likely the loss of {all_called(others)} {depend} on no parameter: "
        f"{mark_words(found[0])}, under `{condition}` in line {line}, is a new tensor. "
        "Its backward pass calls no hook of DistributedDataParallel, so it takes no part in "
        "averaging the gradients, and goes on to the next batch.",
        "Let that loss depend on the parameters: multiply what the model has computed by zero "
        "(features.sum() * 0, with the sum of the outputs of each head), or run the heads on a "
        "dummy input, so that each rank reduces in each step; or leave out such samples alike on "
        "all ranks. find_unused_parameters=True does not help: it needs at least one parameter in "
        "the loss. Nor does a longer timeout or another backend.",
    )


def _passes_over_backward(index: Index, rank: Process) -> Statement | None:
    """The `if` with a `continue` before the backward pass in which a rank is, if there is one."""
    frame = user_frame(_stack(rank))
    line = source_of(index, frame) if frame is not None else None
    skips = [each for each in line.after if each.text.endswith("continue")] if line else []
    return skips[-1] if skips else None


def _one_in_backward(
    index: Index, by_call: Sequence[tuple[str, list[Process]]], records: Sequence[Recorded]
) -> tuple[str, str]:
    """Cause and advice where some ranks are in the backward pass of DDP and others are not."""
    name, others = next((n, group) for n, group in by_call if n != BACKWARD)
    inside = dict(by_call)[BACKWARD][0]
    same = (
        "Give all ranks the same number of batches (DistributedSampler with drop_last, or the "
        f"Join context), and call {name} on all ranks after the same batch."
    )
    ended = _ended_loop(index, others[0], inside)
    parted = parting(index, _stack(others[0]), _stack(inside))
    # Where a condition is known that has parted them, it is told in place of what else may have.
    is_known = parted is not None and parted.is_sure and parted.origin.kind != "data"
    if ended is not None:
        cause, advice = _ended_it_before(index, others, ended, inside, same, is_known=is_known)
    elif is_known:
        cause, advice = "", same
    else:
        cause, advice = _parted_in_the_loop(index, by_call, records, same)
    return (
        "The backward pass of DistributedDataParallel averages gradients by collectives that "
        f"all ranks have to enter; {all_called(others)} called {name} instead. {cause}".rstrip(),
        advice,
    )


def _parted_in_the_loop(
    index: Index,
    by_call: Sequence[tuple[str, list[Process]]],
    records: Sequence[Recorded],
    same: str,
) -> tuple[str, str]:
    """Why ranks are apart of which none is seen to have ended the loop of the others."""
    name, others = next((n, group) for n, group in by_call if n != BACKWARD)
    fresh = _fresh_loss(index, others) if name == BUFFERS else None
    known = fresh or _branched(index, by_call, records)
    if known is not None:
        return known
    branch = "a branch on the rank or on its data makes only some of them call one of the two."
    round_ = same_round(index, [rank for _, group in by_call for rank in group])
    return (
        f"They are in the same round of a loop ({round_} on all of them), so that {branch}"
        if round_
        else f"The ranks have run a different number of batches, or {branch}",
        same + _NO_SKIPPED_BACKWARD,
    )


def _ended_it_before(
    index: Index,
    others: Sequence[Process],
    ended: _EndedLoop,
    inside: Process,
    same: str,
    *,
    is_known: bool,
) -> tuple[str, str]:
    """Why some ranks have ended a loop before the others.

    Args:
        index: The snapshot.
        others: The ranks that have ended it.
        ended: The loop.
        inside: A rank that is still in it.
        same: The fix where they had fewer batches.
        is_known: Whether a condition is known by which they have parted, and is told after this.
    """
    what = (
        f"{all_called(others)} {_have(others)} ended {ended.words}, in which the others still are"
    )
    if ended.by:
        mark = set_by_clock(index, ended.by)
        why = "values" if mark is None else f"a clock ({mark_words(mark)}), or other values,"
        return (
            f"{what}, most likely by {ended.by}: each rank meets that by {why} of its own.",
            f"Let all ranks leave that loop in the same round: combine what {ended.by} tests "
            "(all_reduce of a flag or a count, with MAX) in every round, on all ranks, before "
            "any of them leaves. Or do not leave the loop, and let a rank that has nothing to "
            "learn from a batch run its backward pass on a loss of zero that uses the outputs "
            "(outputs.sum() * 0).",
        )
    skip = _passes_over_backward(index, inside)
    if skip is not None:
        return (
            f"{what}. Most likely `{skip.text}` of line {skip.line} has passed over a backward "
            "pass there: each rank decides that by its own batch. Otherwise there were fewer "
            "batches.",
            f"A rank must not skip a backward pass alone: combine what `{skip.text}` tests on all "
            "ranks (all_reduce of a flag, with MAX) so that all skip the same batch, or run it on "
            "a loss of zero that uses the outputs (outputs.sum() * 0). The same number of batches "
            "for all ranks does not help by itself.",
        )
    if ended.over:
        return (
            f"{what}. Its loop goes over {ended.over}, which decides by itself when it ends: most "
            "likely that was not decided alike on all ranks (an early stop by a loss that only one "
            "rank has computed, a counter that was restored on one rank).",
            "Let all ranks end that loop in the same round: decide on one rank and broadcast it, "
            f"or all_reduce what {ended.over} decides by, in each round and before any rank leaves "
            "the loop. drop_last, the Join context or a longer timeout do not help against that.",
        )
    return (f"{what}.", same) if is_known else _after_fewer_batches(index, what, same)


def _after_fewer_batches(index: Index, what: str, same: str) -> tuple[str, str]:
    """Cause and advice where nothing but the number of batches is known to end a loop."""
    drawn = uneven_draw(index)
    why = f"{what}, most likely after fewer batches"
    if drawn is None:
        return f"{why}.", same
    return (
        f"{why}: {mark_words(drawn)} chooses by chance how many items there are, and nothing that "
        "was read of the program seeds the module random, so each rank has a number of its own.",
        f"Choose the items alike on all ranks: random.Random(seed) with one seed for all, or "
        f"choose on rank 0 and broadcast; divide them between the ranks after that. {same}",
    )


def _one_in_forward(by_call: Sequence[tuple[str, list[Process]]]) -> tuple[str, str]:
    """Cause and advice where some ranks are in the forward pass of DDP and others are not."""
    alone = dict(by_call)[BUFFERS]
    others = [rank for name, group in by_call if name != BUFFERS for rank in group]
    return (
        "The forward pass of a model in DistributedDataParallel broadcasts its buffers (the "
        "running statistics of BatchNorm) from rank 0 to all ranks, so all have to call it; "
        f"{all_called(alone)} called the model, and {all_called(others)} did not.",
        "What only one rank computes (a validation, a sample) has to use model.module, which "
        "communicates with no rank; or let all ranks do it. broadcast_buffers=False leaves the "
        "broadcast out, and each rank then has statistics of its own.",
    )


def _one_makes_group(by_call: Sequence[tuple[str, list[Process]]]) -> tuple[str, str]:
    """Cause and advice where some ranks make a process group and others do not."""
    missing = [rank for name, group in by_call if name != NEW_GROUP for rank in group]
    return (
        f"{NEW_GROUP} waits for all ranks of the default process group, and "
        f"{all_called(missing)} called another collective instead. Most often only the ranks "
        "that are part of the new group call it, or the ranks make their groups in a different "
        "order.",
        f"Call {NEW_GROUP} on all ranks, in the same order, also on those that are not part of "
        "the new group.",
    )


_LOADER_OF_DATAPIPE = (
    "torch/utils/data/dataloader.py:__init__",
    "torch/utils/data/dataloader.py:_share_dist_seed",
)
"""What calls collectives of its own for an IterDataPipe: torch 2.0 to 2.13."""
_WHY_LOADER = (
    "That line makes the iterator of a DataLoader: over a datapipe (IterDataPipe) torch itself "
    "makes a process group for it and broadcasts a seed, so that all ranks shuffle alike."
)
_ADVICE_LOADER = (
    "Make that iterator on all ranks, also where only one of them reads from it; or use an "
    "IterableDataset in place of the datapipe, for which torch calls no collective. Other batch "
    "sizes, another number of workers, a barrier before or a longer timeout does not help."
)


def _guarded(index: Index, by_call: Sequence[tuple[str, list[Process]]]) -> tuple[str, str] | None:
    """Cause and advice where the source has a condition on the rank that only some ranks meet."""
    for name, group in reversed(by_call):
        guard = guard_on_rank(index, group[0])
        others = [rank for other, ranks in by_call if other != name for rank in ranks]
        if guard is None or any(guard_on_rank(index, rank) == guard for rank in others):
            continue
        into = next(each for each, _ in by_call if each != name)
        why = (
            f"Only some ranks call {name}: {guard.words}, and {all_called(group)} {_are(group)} "
            f"past it. {all_called(others)} went on to {into}."
        )
        frames = own_frames(_stack(group[0]))
        if any(calls(frames, each) for each in _LOADER_OF_DATAPIPE):
            return f"{why} {_WHY_LOADER}", _ADVICE_LOADER
        return (
            why,
            f"Call {name} on all ranks: move it out of what depends on the rank, so that only what "
            f"one rank is to do alone (writing a file, logging) is under `{guard.statement.text}`. "
            f"Or, if {name} is not needed there, remove it.",
        )
    return None


def _branched(
    index: Index, by_call: Sequence[tuple[str, list[Process]]], records: Sequence[Recorded]
) -> tuple[str, str] | None:
    """Cause and advice where ranks have parted at a condition on their data.

    Not where torch has recorded that they have made a different number of calls before.
    """
    if len({each.number for each in records}) > 1 or len(by_call) != 2:
        return None
    found = [
        (name, group, branch)
        for (name, group), (_, others) in (by_call, by_call[::-1])
        if (branch := branch_of_one_side(index, _stack(group[0]), _stack(others[0]))) is not None
    ]
    if len(found) != 1:
        return None
    name, group, branch = found[0]
    other, others = next((n, ranks) for n, ranks in by_call if n != name)
    is_known = len(records) == len(by_call)
    told = told_of(index, branch.frame.file, branch.statement)
    why = "it tests what each rank computes or finds for itself, such as its own data or a file"
    outside = f"Or call {name} on all ranks outside of that condition."
    advice = (
        f"Let all ranks decide alike: reduce or broadcast the value that `{branch.statement.text}` "
        "tests (all_reduce of a loss or flag, or a broadcast of what rank 0 has found) before it, "
        f"or call {name} on all ranks outside of that condition."
    )
    return (
        f"Ranks take different branches at a condition: {all_called(group)} {_are(group)} in "
        f"{name}, because {branch.words}; {all_called(others)} {_have(others)} gone on to {other} "
        "without it. "
        + (
            f"All have made the same number of calls before ({records[0].number - 1}), so "
            if is_known
            else "Unless they have done a different number of rounds, "
        )
        + f"the condition was not the same for all: {why if told is None else told[0]}.",
        f"{told[1]} {outside}" if told is not None and told[1] else advice,
    )


def _stack(rank: Process) -> Sequence[Frame]:
    thread = main_thread(rank)
    return () if thread is None else thread.stack


def _are(ranks: Sequence[Process]) -> str:
    return "is" if len(ranks) == 1 else "are"


def _have(ranks: Sequence[Process]) -> str:
    return "has" if len(ranks) == 1 else "have"


class _EndedLoop(Struct, frozen=True):
    """A loop, or a function with one, that some ranks have ended and others have not."""

    words: str
    by: str
    """The conditions in it that end it and that ranks may meet differently; empty for none."""
    over: str = ""
    """What it goes over, where that is an object of the program which ends by itself."""


def _ended_loop(
    index: Index, ahead: Process, inside: Process, functions: bool = True
) -> _EndedLoop | None:
    """What one rank has ended in which another one still is; `None` if that is not seen.

    Args:
        index: The snapshot.
        ahead: The rank that has ended it.
        inside: The other one.
        functions: Whether a function that it has left counts, before the loop around.
    """
    left = left_function(index, ahead, inside) if functions else None
    if left is not None and _has_loop(index, left.line, inside):
        by = loop_ends(index, left.line, True)
        return _EndedLoop(f"{left.line.function}()", by, _own_iterator(index, left.line))
    again = begun_again(index, _stack(inside), _stack(ahead))
    if again is not None:
        anew = f"{_loop_words(*again)}, and begun it anew"
        return _EndedLoop(anew, loop_ends(index, again[0], True))
    passed = passed_loop(index, _stack(inside), _stack(ahead))
    if passed is None:
        return None
    return _EndedLoop(_loop_words(*passed), loop_ends(index, passed[0], True))


def _has_loop(index: Index, first: Frame, inside: Process) -> bool:
    """Whether a rank is in a loop of a function that another has left, or of one that it calls.

    Also where that is not known. Else the other has left it in the same round of a loop around.
    """
    frames = program_frames(_stack(inside))
    depth = frames.index(first) + 1 if first in frames else len(frames)
    lines = [source_of(index, each) for each in frames[:depth]]
    return any(line is None or is_in_loop(line.within) for line in lines)


_OVER_OBJECT = re.compile(r"^for \w+ in ([A-Za-z_][\w.]*[^s\W]):$")
"""A name in the plural is that of several things, and ends with the last of them."""


def _own_iterator(index: Index, frame: Frame) -> str:
    """The object that the innermost loop around a frame goes over, if it is none of the data."""
    line = source_of(index, frame)
    loops = [each for each in line.within if each.text.startswith("for ")] if line else []
    found = _OVER_OBJECT.match(loops[-1].text) if loops else None
    return found[1] if found is not None and not _ALIKE.search(found[1].lower()) else ""


def _loop_words(frame: Frame, header: Statement) -> str:
    return f"the loop `{header.text}` of line {header.line} in {frame.function}()"


class _LeftEarly(Struct, frozen=True):
    cause: str
    advice: str
    is_known: bool = False
    """Whether the source shows by what condition."""
    is_open: bool = False
    """Whether nothing but the lines of the ranks tells it."""
    is_under_rank: bool = False
    """Whether a condition on the rank leads to a collective."""


def _left_early(index: Index, by_call: Sequence[tuple[str, list[Process]]]) -> _LeftEarly | None:
    """That some ranks have left the function in which the others still call a collective."""
    (call, inside), (other, ahead) = by_call[0], by_call[-1]
    left = left_function(index, ahead[0], inside[0])
    if left is None:
        (call, inside), (other, ahead) = by_call[-1], by_call[0]
        left = left_function(index, ahead[0], inside[0])
    if left is None:
        return None
    function, at = left.line.function, f"{left.line.function}() ({frame_words(left.line)})"
    has = "has" if len(ahead) == 1 else "have"
    if (alone := collective_under_rank(index, left.line)) is not None:
        return _LeftEarly(
            f"{all_called(inside)} {'calls' if len(inside) == 1 else 'call'} {call} in {at}, and "
            f"{all_called(ahead)} {has} left {function}(). Most likely they are one collective "
            f"apart: {alone.words}. So only the ranks for which that condition holds enter it, and "
            "each later collective of theirs meets another one of the others.",
            alone.advice,
            is_under_rank=True,
        )
    if (timed := _left_by_clock(index, left, call, inside, (other, ahead))) is not None:
        return timed
    if len(inside) < len(ahead):
        return _LeftEarly(
            f"{all_called(inside)} {'calls' if len(inside) == 1 else 'call'} {call} in {at}. "
            f"{all_called(ahead)} {has} passed the line that calls {function}(), and {has} come to "
            f"{other} at {frame_words(left.past)}. Unless {left.past.function}() calls both in one "
            f"loop, {all_called(ahead)} {has} not called {function}() (a branch on the rank, such "
            "as if rank == 0), or returned from it earlier.",
            f"Call {function}() on all ranks as long as it contains a collective (a barrier, a "
            "gather, consolidate_state_dict() or state_dict() of a sharded optimizer or model), "
            "and let only what writes the file depend on the rank.",
        )
    ends = loop_ends(index, left.line)
    if ends:
        return _LeftEarly(
            f"{all_called(ahead)} {has} left {function}(), in which {all_called(inside)} still "
            f"{'calls' if len(inside) == 1 else 'call'} {call}, and {has} come to {other} at "
            f"{frame_words(left.past)}. The loop of {function}() also ends by {ends}, which "
            f"{all_called(ahead)} may have met and {all_called(inside)} not.",
            f"Let all ranks decide alike when the loop of {function}() ends: compute what "
            f"{ends} tests from values that all ranks share, or decide on one rank and broadcast "
            "the decision (broadcast, or all_reduce with MAX) before any rank leaves the loop. A "
            "barrier makes them wait for each other, but does not share the value.",
        )
    return _LeftEarly(
        f"{all_called(ahead)} {has} left {function}(), in which {all_called(inside)} still "
        f"{'calls' if len(inside) == 1 else 'call'} {call}, and {has} come to {other} at "
        f"{frame_words(left.past)}. Unless {left.past.function}() calls both in one loop, "
        f"{all_called(ahead)} {has} made fewer calls in {function}().",
        f"Let all ranks make the same calls in {at}: a loop there has to run over the same items "
        "on all of them (a fixed list of keys, classes or batches, with zeros for what a rank does "
        "not have), or reduce one tensor that holds all.",
        is_open=True,
    )


def _left_by_clock(
    index: Index,
    left: LeftFunction,
    call: str,
    inside: Sequence[Process],
    after: tuple[str, Sequence[Process]],
) -> _LeftEarly | None:
    """That ranks have left a loop by its condition on the time.

    Args:
        index: The snapshot.
        left: The function with the loop.
        call: The collective in which the others still are.
        inside: Those.
        after: The collective that comes after the loop, and the ranks in it.
    """
    timed = ends_by_clock(index, left.line)
    if timed is None:
        return None
    (header, part), (other, ahead) = timed, after
    has = "has" if len(ahead) == 1 else "have"
    mark = set_by_clock(index, part)
    by = f"`{part}`" if mark is None else f"`{part}`, of what {mark_words(mark)} sets"
    return _LeftEarly(
        f"{all_called(ahead)} {has} left the loop `{header.text}` of line {header.line} in "
        f"{left.line.function}(), in which {all_called(inside)} still "
        f"{'calls' if len(inside) == 1 else 'call'} {call}, and {has} come to {other} at "
        f"{frame_words(left.past)}. Most likely by {by}, which each rank tests by a clock "
        f"of its own: they begin to count at different moments, so the time of "
        f"{all_called(ahead)} was up a round before.",
        "Let one rank decide when the time is up, and tell the others in each round (broadcast "
        "its decision, or all_reduce a flag), before any of them leaves the loop. Barriers before "
        "the loop, or clocks that agree better, only make it rarer; the same amount of data for "
        "all, or a longer timeout, does not help.",
        is_known=True,
    )


def _why_different(
    by_call: Sequence[tuple[str, list[Process]]], records: Sequence[Recorded]
) -> str:
    """Whether ranks in different collectives have made as many calls as the others before."""
    branch = "a branch depends on the rank or on its data"
    numbers = [each.number for each in records]
    if len(numbers) < len(by_call) or any(not each.is_unfinished for each in records):
        return (
            f"The ranks call different collectives: {branch}, or the ranks have made a different "
            "number of calls before."
        )
    if len(set(numbers)) == 1:
        return (
            f"The ranks have made the same number of calls before ({numbers[0] - 1}) and now call "
            f"different ones: {branch}, or some made another call in place of one of the others."
        )
    counts = ", ".join(
        f"{all_called(group)} {number - 1}"
        for (_, group), number in zip(by_call, numbers, strict=True)
    )
    return (
        f"The ranks have made a different number of calls before: {counts}. A loop has run longer "
        f"on some of them, or {branch}."
    )
