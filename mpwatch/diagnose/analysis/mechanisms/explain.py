"""Why the processes of a cycle of waits, or of a chain with a dead end, cannot continue.

Each mechanism is recognised by what was observed of every process concerned: its system call, its
stack, and which of the others could end its wait. Where none is recognised, the cause says for each
process what another one would have to do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from mpwatch.describe.frames import frame_words, is_library, own_frames
from mpwatch.describe.processes import wait_verb
from mpwatch.describe.waits import FULL_QUEUE, SEMAPHORE
from mpwatch.diagnose.analysis.distributed.flight_recorder import unfinished
from mpwatch.diagnose.analysis.distributed.ranks import OTHERS, groups_apart
from mpwatch.diagnose.analysis.exits import Death, death_of, raised_at
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.mechanisms.among_threads import (
    ADVICE_LOOP,
    LOCK_IN_COROUTINE,
    LOOP_BLOCKED,
    idle_loop,
    only_a_callback,
    waits_for_an_interrupted_holder,
    waits_for_own_threads,
)
from mpwatch.diagnose.analysis.mechanisms.cases import (
    NAMED,
    QUEUE_ITEM,
    Case,
    Mechanism,
    Waiter,
    at_line,
    awaited,
    ended_words,
    gets_from_queue,
    with_sigterm,
)
from mpwatch.diagnose.analysis.mechanisms.dropped_answers import dropped_answers
from mpwatch.diagnose.analysis.mechanisms.kept_locks import kept_file_lock
from mpwatch.diagnose.analysis.mechanisms.part_batch import part_batch
from mpwatch.diagnose.analysis.mechanisms.servers import (
    both_receive,
    managed,
    one_at_a_time,
    unset_key,
)
from mpwatch.diagnose.analysis.mechanisms.unreleased import (
    left,
    not_given_back,
    taken_twice,
    unreleased,
    unset_alone,
)
from mpwatch.diagnose.analysis.pipes import READ_BOTH, channels_among, output_of, unread_pipe
from mpwatch.diagnose.analysis.process_queries import (
    SERVICE_ROLES,
    WORK_ROLES,
    all_called,
    called,
    children_started_by,
    counted,
    family_head,
)
from mpwatch.diagnose.analysis.source_code import loop_around, mark_words, marks, source_of
from mpwatch.diagnose.analysis.stack_patterns import (
    calls,
    current_collective,
    main_shape,
    main_thread,
    runs_event_loop,
    user_frame,
)
from mpwatch.diagnose.analysis.waits.edges import UNUSED, ended_holders, surroundings
from mpwatch.diagnose.analysis.waits.futures import (
    MANAGER_WAITS,
    POOL_END,
    POOL_RESULT,
    RESULT,
    Kind,
    NestedCalls,
    abandoned,
    imported_at,
    nested_calls,
)
from mpwatch.diagnose.analysis.waits.providers import (
    BARRIER,
    EVENT,
    QUEUE_LOCK,
    Nested,
    nested_in,
    semaphore_uses,
)
from mpwatch.diagnose.analysis.waits.threads import (
    others_that_wait,
    sentence,
)
from mpwatch.diagnose.analysis.waits.verdicts import (
    NO_WRITER,
    ONLY_THREAD,
    OWN_BLOCK,
    OWN_LOCK,
    OWN_LOG,
    OWN_QUEUE,
    self_blocked,
)
from mpwatch.diagnose.known_errors import evidence_of, place_of
from mpwatch.model.cmdline import python_program
from mpwatch.model.samples import READS, Frame
from mpwatch.model.snapshot import Process
from mpwatch.model.waits import WaitChain, WaitGraph

_AT_EXIT = "util.py:_exit_function"
"""What joins the children of a program that has come to its end (multiprocessing)."""


def mechanism_of(index: Index, waits: WaitGraph, chain: WaitChain) -> Mechanism | None:
    """Why a chain that is a cycle or a dead end cannot continue.

    Returns:
        `None` where nothing more is known than that it is one.
    """
    waiters = _waiters(index, waits, chain)
    case = Case(index, waits, chain, waiters)
    ways = _OF_CYCLES if chain.verdict == "cycle" else _OF_DEAD_ENDS
    return next((found for way in ways if (found := way(case)) is not None), None)


def _waiters(index: Index, waits: WaitGraph, chain: WaitChain) -> tuple[Waiter, ...]:
    """The processes of a chain in its order, each with the wait that the chain follows."""
    edges = {(edge.waiter, edge.tid): edge for edge in waits.edges}
    found: dict[object, Waiter] = {}
    for link in chain.links[chain.cycle_at :]:
        process = index.snapshot.get(link.process)
        edge = edges.get((link.process, link.tid or 0)) if link.process is not None else None
        if process is None or edge is None:
            continue
        thread = next((each for each in process.threads if each.tid == edge.tid), None)
        # Two links of one process: its main thread waits for another of its threads.
        found[process.process] = Waiter(process, edge, thread)
    return tuple(found.values())


# --- cycles --------------------------------------------------------------------------------------


def _all_write(case: Case) -> Mechanism | None:
    """Every thread of a cycle is blocked in a send, so that none will read."""
    writes = ("pipe-write", "socket-write")
    if len(case.waiters) < 2 or not all(each.edge.kind in writes for each in case.waiters):
        return None
    full = next(((each, out) for each in case.waiters if (out := _output(each))), None)
    if full is not None:
        return _full_output(case, *full)
    return Mechanism(
        cause=(
            "Each process sends to the next and reads nothing until its send is complete. Earlier "
            "data fills the pipe or socket between them, so none of them gets to read."
        ),
        advice=(
            "Let one side receive before it sends, or read in a thread of its own. A Pipe without "
            "a reader accepts one socket buffer of data; Queue.put() does not block like this, "
            "because a background thread sends."
        ),
        headline=f"{_names(case)} are all blocked in a send, and none of them receives.",
        is_certain=True,
    )


def _full_output(case: Case, writer: Waiter, stream: str) -> Mechanism:
    """A subprocess prints to a pipe that its parent does not read while it feeds the subprocess."""
    name = called(writer.process)
    others = [each.process for each in case.waiters if each is not writer]
    reader = next((p for p in others if p.process in writer.edge.providers), others[0])
    return Mechanism(
        cause=(
            f"{name} writes to its {stream}, a pipe that {called(reader)} has to read and does not "
            f"read while it sends. The pipe is full, so {name} waits, and takes nothing more from "
            "its input, which fills as well."
        ),
        advice=(
            f"Send its {stream} to a file or to subprocess.DEVNULL, or read it in a thread of its "
            "own for as long as the subprocess runs; communicate() does so where all input is "
            "known beforehand."
        ),
        headline=(
            f"{name} is blocked writing to its {stream}, which {called(reader)} does not read, and "
            f"{called(reader)} is blocked in a send"
        ),
        is_certain=True,
    )


def _all_put(case: Case) -> Mechanism | None:
    """Every process of a cycle waits for room in a queue with a bound, so that none will get."""
    if not case.waiters or not all(_is_full_queue(each) for each in case.waiters):
        return None
    uses = semaphore_uses(case.index)
    segments = {uses[each.process.process].segment for each in case.waiters}
    putting = [
        process
        for process in case.index.snapshot.living()
        if (use := uses[process.process]).what == FULL_QUEUE and use.segment in segments
    ]
    queues = counted(len(segments), "full queue")
    return Mechanism(
        cause=(
            f"Room in a queue with a maxsize comes only from a get(). All the processes that have "
            f"{'this queue' if len(segments) == 1 else 'these queues'} wait, "
            f"{len(putting)} of them in put(), and none of them gets an item."
        ),
        advice=(
            "Look at which of them reads the queue: a process that puts items back into the queue "
            "that it reads waits for itself once the queue is full, and so does one that puts all "
            "its tasks before it collects results. Keep such items in a list of its own, collect "
            "between the puts, or use put(timeout=...) and get in between."
        ),
        evidence=(f"in put of {queues}: {all_called(putting)}", *_where_they_get(case, putting)),
        headline=f"{all_called(putting)} wait to put into {queues} that none of them reads.",
        is_certain=all(_has_no_timeout(each) for each in case.waiters),
    )


def _where_they_get(case: Case, processes: Sequence[Process]) -> Iterator[str]:
    """The lines at which processes that now put were seen to wait for an item before."""
    for process in processes[:NAMED]:
        account = case.index.snapshot.account.processes.get(process.process)
        if account is None or not account.uncounted:
            continue
        seen = account.uncounted[0].whole().seen
        places = [each.place for each in seen if each.what == QUEUE_ITEM and each.place]
        if places:
            yield f"{called(process)} was seen before to wait for {QUEUE_ITEM}, at {places[0]}"


def _is_full_queue(waiter: Waiter) -> bool:
    return waiter.edge.what.startswith(FULL_QUEUE)


def _has_no_timeout(waiter: Waiter) -> bool:
    wait = waiter.thread.waits_on if waiter.thread is not None else None
    return wait is not None and wait.timeout_s is None


def _all_take_locks(case: Case) -> Mechanism | None:
    """Every process of a cycle is about to take a lock, without a time limit."""
    takes = [
        main_shape(each.process) == "lock-between-processes"
        and each.edge.kind == "semaphore"
        and _has_no_timeout(each)
        for each in case.waiters
    ]
    if not takes or not all(takes):
        return None
    return Mechanism(
        cause=(
            "Each of these processes waits to take a lock that the next one has as well, and none "
            "of them runs. Processes that take the same locks in different order block each other "
            "like this."
        ),
        advice=(
            "Take the locks in the same order in every process, or use one lock in place of "
            "several. With acquire(timeout=...) a process can release what it holds and try again."
        ),
        headline=f"{_names(case)} each wait to take a lock that another one of them has.",
        is_certain=True,
    )


def _all_acquire(case: Case) -> Mechanism | None:
    """Every process of a cycle calls acquire() of another semaphore, outside of a with block."""
    waiters = case.waiters
    if len(waiters) < 2 or not all(
        each.edge.what.startswith(SEMAPHORE) and _has_no_timeout(each) for each in waiters
    ):
        return None
    return Mechanism(
        cause=(
            f"{_names(case)} each wait in acquire() for a lock or semaphore that another one of "
            "them has to release. Either each holds one that the next wants (taken in different "
            "order), or semaphores count items and room, and one release() too few was called: a "
            "return, a continue or an exception between acquire() and release() skips it, and the "
            "count is wrong from then on."
        ),
        advice=(
            "Look at every way between acquire() and release() at the lines above: release in a "
            "finally block. Take several locks in the same order everywhere. A Queue(maxsize) "
            "keeps such counts itself."
        ),
        headline=f"{_names(case)} each wait to acquire what another one of them has to release.",
    )


def _unread_output(case: Case) -> Mechanism | None:
    """A full pipe that its reader, alive, does not read."""
    unread = unread_pipe(case.index.snapshot, case.waits, case.chain)
    if unread is None:
        return None
    return Mechanism(unread.cause, READ_BOTH, (unread.evidence,))


def _blocked_output(case: Case) -> Mechanism | None:
    """A process is blocked writing to its output, and its reader waits for its answer."""
    found = next(((each, out) for each in case.waiters if (out := _output(each))), None)
    if found is None or len(case.waiters) < 2:
        return None
    writer, stream = found
    reader = next((e for e in case.waiters if e.process.process in writer.edge.providers), None)
    if reader is None:
        return None
    name, parent = called(writer.process), called(reader.process)
    return Mechanism(
        cause=(
            f"{name} writes to its {stream}, a pipe that {parent} has to read and does not read. "
            f"The pipe is full, so {name} waits there, and does not come to what {parent} waits "
            f"for: {awaited(case, reader)}."
        ),
        advice=_ADVICE_OUTPUT.format(stream=stream),
        headline=(
            f"{name} is blocked writing to its {stream}, which {parent} does not read, and "
            f"{parent} waits for it"
        ),
        is_certain=True,
    )


_ADVICE_OUTPUT = (
    "Send its {stream} to a file or to subprocess.DEVNULL, or let it inherit that of its parent "
    "(no subprocess.PIPE), or read it in a thread of its own for as long as the subprocess runs. "
    "communicate() reads it, but only to the end of the subprocess. Fewer messages only make it "
    "happen later."
)


def _too_few_parties(case: Case) -> Mechanism | None:
    """All processes that run the same have reached a barrier, and it still waits."""
    first = next((each for each in case.waiters if each.edge.what.startswith(BARRIER)), None)
    wait = first.thread.waits_on if first is not None and first.thread is not None else None
    if first is None or wait is None:
        return None
    uses = semaphore_uses(case.index)
    here = [
        process
        for process in case.index.snapshot.living()
        if uses[process.process].segment == wait.segment
    ]
    after = [each for each in case.waiters if each.process not in here]
    if len(after) != 1 or after[0].process.role in WORK_ROLES:
        return None
    parent, is_join = called(after[0].process), after[0].edge.kind == "child"
    also = "" if is_join else f", or {parent} was to come to it and waits at another line instead"
    return Mechanism(
        cause=(
            "A barrier opens when as many have arrived as it was made for. "
            f"{all_called(here)} {'have' if len(here) > 1 else 'has'} reached it, and no other "
            f"process runs the same; {parent}, which has it as well, waits for "
            f"{awaited(case, after[0])}. It was "
            f"made for more parties than call wait(){also}."
        ),
        advice=(
            "Make the barrier for exactly as many parties as call wait(): one more for the parent "
            "only if the parent calls it too. With a timeout, a wrong number becomes an error."
        ),
        headline=(
            f"{all_called(here)} wait{'' if len(here) > 1 else 's'} at a barrier for more "
            "parties than call its wait()."
        ),
        is_certain=_has_no_timeout(first) and is_join,
    )


def _all_at_barrier(case: Case) -> Mechanism | None:
    """Every process of a cycle has reached the same barrier, so that another one is missing."""
    waits = [each.thread.waits_on for each in case.waiters if each.thread is not None]
    segments = {wait.segment for wait in waits if wait is not None}
    if len(segments) != 1 or not all(each.edge.what.startswith(BARRIER) for each in case.waiters):
        return None
    uses, (segment,) = semaphore_uses(case.index), segments
    here = [
        process
        for process in case.index.snapshot.living()
        if uses[process.process].segment == segment
    ]
    heads = {process.process for process in here} | {process.parent for process in here}
    gone = [
        process
        for process in case.index.snapshot.processes
        if process.ended is not None
        and process.parent in heads
        and process.role not in SERVICE_ROLES
    ]
    why = (
        f" {all_called(gone)} {'have' if len(gone) > 1 else 'has'} ended, most likely before "
        "reaching it."
        if gone
        else " It was made for more parties than these, or one of them has ended."
    )
    return Mechanism(
        cause=(
            "A barrier opens when as many have arrived as it was made for, and does not notice "
            f"exits. {all_called(here)} {'have' if len(here) > 1 else 'has'} arrived, and no other "
            f"living process of the job is on its way to it.{why}"
        ),
        advice=(
            "Give the barrier a timeout, which breaks it for all, and call barrier.abort() where a "
            "process fails. Read the standard error of what has ended; make the barrier for "
            "exactly as many parties as call wait()."
        ),
        evidence=tuple(
            f"{called(each)} ended: {each.ended.words}" for each in gone[:NAMED] if each.ended
        ),
        headline=(
            f"{all_called(here)} wait at a barrier for {all_called(gone)}, which "
            f"{'have' if len(gone) > 1 else 'has'} ended."
            if gone
            else f"{all_called(here)} wait at a barrier that no other process reaches."
        ),
        is_certain=bool(gone),
    )


def _joins_readers(case: Case) -> Mechanism | None:
    """A process waits for the exit of a reader of a queue, of which several wait for an item."""
    joining = next((each for each in case.waiters if each.edge.kind == "child"), None)
    readers = [each for each in case.waiters if each is not joining]
    if joining is None or len(readers) < 2:
        return None
    if not all(gets_from_queue(each) or each.edge.what.startswith(QUEUE_LOCK) for each in readers):
        return None
    uses = semaphore_uses(case.index)
    locks = {use.segment for each in readers if (use := uses[each.process.process]).segment}
    known = {each.process.process for each in readers}
    here = [
        process
        for process in case.index.snapshot.living()
        if process.process in known
        or (uses[process.process].segment in locks and uses[process.process].what == QUEUE_LOCK)
    ]
    parent = called(joining.process)
    return Mechanism(
        cause=(
            f"{parent} waits for the exit of {called(readers[0].process)} and puts nothing "
            f"meanwhile. {all_called(here)} wait in Queue.get for an item: the one that was to "
            "tell each of them to end has not arrived, or another reader has taken it."
        ),
        advice=(
            "Put one item that tells to end (None) for each reader before the join, also after an "
            "exception; a reader that has got it may put it back for the next. Or read with "
            "get(timeout=...) and an Event that tells to end."
        ),
        headline=(
            f"{parent} waits for the exit of {called(readers[0].process)}, and "
            f"{all_called(here)} wait for an item of a queue that no process puts."
        ),
    )


def _calls_wait_for_items(case: Case) -> Mechanism | None:
    """A process waits for the results of a pool, whose calls wait for items of a queue."""
    results = [each for each in case.waiters if each.edge.what in (RESULT, POOL_RESULT, POOL_END)]
    running = [each for each in case.waiters if each not in results]
    if len(results) != 1 or not running:
        return None
    if not all(gets_from_queue(each) or each.edge.what.startswith(QUEUE_LOCK) for each in running):
        return None
    parent, names = called(results[0].process), all_called([each.process for each in running])
    verb = wait_verb(running)
    return Mechanism(
        cause=(
            f"{parent} waits for {results[0].edge.what}. The call that {names} "
            f"{'runs' if len(running) == 1 else 'run'} {verb} in Queue.get for an item, which only "
            f"{parent} or another call could put. What was put has been taken: a call that takes "
            "an item for a time (a device, a slot, a token) and does not put it back, or fewer "
            "items than calls, leaves the queue empty for good."
        ),
        advice=(
            "Put such an item back in a finally block, also where the call returns early or "
            "raises. Give each worker its own item in the initializer of the pool; use "
            "get(timeout=...), which raises in the call and is passed on with its result."
        ),
        headline=(
            f"a call of the pool of {parent} waits for an item of a queue that no process puts, in "
            f"{names}."
        ),
    )


def _joins_one_that_waits_for_it(case: Case) -> Mechanism | None:
    """A process waits for the exit of a child, and the child for what the process would send."""
    if len(case.waiters) != 2:
        return None
    joining = next((each for each in case.waiters if each.edge.kind == "child"), None)
    child = next((each for each in case.waiters if each is not joining), None)
    if joining is None or child is None or joining.process.process not in child.edge.providers:
        return None
    found = None
    if child.edge.kind in ("pipe-write", "socket-write"):
        found = _joins_a_writer(joining, child)
    elif child.edge.what.startswith(FULL_QUEUE):
        found = _joins_one_that_puts(joining, child)
    elif child.edge.kind in READS:
        found = part_batch(case) or _joins_a_reader(case, joining, child)
    if found is None:
        return None
    cause, advice = with_sigterm(child.process, found.cause, found.advice)
    return replace(found, cause=cause, advice=advice)


def _joins_a_writer(joining: Waiter, child: Waiter) -> Mechanism:
    """The child sends what its parent does not read, since it waits for the child's exit."""
    parent, name = called(joining.process), called(child.process)
    stream = _output(child)
    if stream:
        return Mechanism(
            cause=(
                f"{parent} waits for the exit of {name} and does not read its {stream} "
                f"meanwhile. That pipe is full, so {name} is blocked writing to it and does "
                "not get to its end."
            ),
            advice=READ_BOTH,
            headline=f"{parent} waits for the exit of {name}, whose {stream} no process reads.",
            is_certain=True,
        )
    return Mechanism(
        cause=(
            f"{parent} waits for the exit of {name}, and reads nothing meanwhile. {name} is "
            "blocked sending what has not been read, so it does not get to its end."
        ),
        advice=f"Receive everything that {name} sends before {parent} joins it.",
        headline=f"{parent} waits for the exit of {name}, which waits for it to read.",
        is_certain=True,
    )


def _joins_one_that_puts(joining: Waiter, child: Waiter) -> Mechanism:
    """The child puts into a queue from which its parent takes nothing meanwhile."""
    parent, name = called(joining.process), called(child.process)
    return Mechanism(
        cause=(
            f"{parent} waits for the exit of {name}, and takes nothing out of the queue "
            f"meanwhile. {name} waits for room in it, so it does not get to its end."
        ),
        advice=(
            f"Take all items out of the queue before {parent} joins (count them, or one None "
            "of each process as its last item), or give the queue no maxsize and read it "
            "before the join all the same."
        ),
        headline=(f"{parent} waits for the exit of {name}, which waits for room in a full queue."),
        is_certain=_has_no_timeout(child),
    )


def _joins_a_reader(case: Case, joining: Waiter, child: Waiter) -> Mechanism:
    """The child waits for what its parent would send."""
    parent, name = called(joining.process), called(child.process)
    if joining.thread is not None and calls(own_frames(joining.thread.stack), _AT_EXIT):
        return _ended_before_its_children(case, joining.process, name)
    others = others_that_wait(case.index, joining.process, joining.edge.tid)
    if others:
        return Mechanism(
            cause=(
                f"{parent} waits for the exit of {name}, which waits for an answer. A thread of "
                f"{parent} may be the one that has to answer, and waits itself: "
                f"{sentence(joining.process, others[0])}."
            ),
            advice=(
                "Look at the line of that thread: what it waits for has to come from yet another "
                "thread. A server that is told to shut down by its own handler waits for itself: "
                "call shutdown() in a thread of its own, after the answer was sent."
            ),
            headline=f"{parent} waits for the exit of {name}, which waits for something from it.",
        )
    return Mechanism(
        cause=(
            f"{parent} waits for the exit of {name}, and sends nothing meanwhile. {name} waits "
            f"to receive from it, so it does not get to its end."
        ),
        advice=(
            "Send each worker the item that tells it to end (one None for each of them) before "
            "the join; with a Pipe, close every copy of the writing end, so that the reader gets "
            "EOFError. A worker that should end by itself needs a get(timeout=...)."
        ),
        headline=f"{parent} waits for the exit of {name}, which waits for something from it.",
    )


def _raised_in_main(case: Case, parent: Process) -> tuple[str, str, tuple[str, ...]]:
    """What has ended the main thread of a process, `KeyError at train.py:12 load`.

    With how sure that is, and evidence. By its hook, or by a traceback in a file to which it writes
    that begins with its program; empty if none is known.
    """
    for entry in reversed(case.index.entries("exception")):
        if entry.process == parent.process and entry.details.get("where") == "main":
            place = place_of(entry.details)
            what = f"{entry.details.get('type')}{f' at {place}' if place else ''}"
            return what, "", evidence_of(entry)
    program = python_program(parent.sample.cmdline)
    for error in reversed(case.index.snapshot.written):
        is_its = parent.process in error.writers and error.is_of_job and error.rank is None
        if is_its and program.name and error.script.endswith(f"/{program.name}"):
            raised, file = error.raised, error.file.rpartition("/")[2]
            told = f"most likely its traceback in {file}: {raised.type}: {raised.text}"
            return f"{raised.type} at {raised_at(raised)}", "most likely ", (told,)
    return "", "", ()


def _leaving_parent(index: Index, process: Process) -> Process | None:
    """The process that started this one, if its main thread has come to its end and joins others.

    It has closed its queues by then, so that it is not found among those that have them.
    """
    parent = family_head(index, process)
    thread = main_thread(parent) if parent is not None and not parent.is_gone else None
    is_leaving = thread is not None and calls(own_frames(thread.stack), _AT_EXIT)
    return parent if is_leaving else None


def _ended_before_its_children(
    case: Case, parent: Process, name: str, *, is_joined_next: bool = True
) -> Mechanism:
    """The main thread of a parent has come to its end; by an exception, if its hook says so.

    Args:
        case: The waits.
        parent: The parent.
        name: The child that waits for it.
        is_joined_next: Whether the parent joins this child already, and not another one before it.
    """
    raised, likely, evidence = _raised_in_main(case, parent)
    how = f"has {likely}raised {raised}" if raised else "has come to its end"
    end = (
        f"was {likely}ended by {raised}"
        if raised
        else "has come to its end: at its last line, by sys.exit, or by an exception, whose "
        "traceback is on standard error"
    )
    first = "Mend the line shown. After" if raised else "Read standard error first: after"
    return Mechanism(
        cause=(
            f"The main thread of {called(parent)} {end}. Python then joins all children that are "
            f"not daemons, and {name} still waits for something from it."
        ),
        advice=(
            f"{first} an exception, the lines that end the children were skipped. Put those into a "
            "finally block, or start the children with daemon=True, so that they are ended."
        ),
        evidence=evidence,
        headline=(
            f"{called(parent)} {how} and waits for {name}, which waits for it."
            if is_joined_next
            else f"{called(parent)} {how}, and {name} still waits for an item from it."
        ),
    )


def _output(waiter: Waiter) -> str:
    """The standard output or error to which a process is blocked writing; empty for others."""
    wait = waiter.thread.waits_on if waiter.thread is not None else None
    pipes = channels_among(wait.targets) if wait is not None else ()
    return output_of(waiter.process, pipes[0]) if pipes else ""


def _joined_by_their_parent(case: Case) -> tuple[Waiter, Waiter] | None:
    """The process that waits for the exit of one of some readers, and that reader.

    Readers of one queue wait for its lock and for each other's copies of its writing end. Who is to
    end them is the one that joins them.
    """
    readers = {each.process.process: each for each in case.waiters}
    for edge in case.waits.edges:
        child = next((readers[each] for each in edge.providers if each in readers), None)
        parent = case.index.snapshot.get(edge.waiter)
        if edge.kind == "child" and child is not None and parent is not None:
            thread = next((each for each in parent.threads if each.tid == edge.tid), None)
            return Waiter(parent, edge, thread), child
    return None


def _all_read(case: Case) -> Mechanism | None:
    """Every process of a cycle waits to receive, so that none sends."""
    if len(case.waiters) < 2 or not all(
        each.edge.kind in READS or each.edge.what.startswith(QUEUE_LOCK) for each in case.waiters
    ):
        return None
    partial = part_batch(case)
    if partial is not None:
        return partial
    by_queue = all(gets_from_queue(each) for each in case.waiters)
    joined = _joined_by_their_parent(case) if by_queue else None
    if joined is not None:
        parent = joined[0]
        line = f"{called(parent.process)} is{at_line(parent.thread)}"
        return replace(_joins_a_reader(case, *joined), evidence=(line,))
    buffered = _unflushed_input(case) or _buffered_input(case) or _buffered_output(case)
    if buffered is not None:
        return buffered
    how = "in Queue.get for an item" if by_queue else "to receive something"
    is_stream = all(_reads_a_stream(each) for each in case.waiters)
    lost = "never sent, was lost, or was taken by another process"
    if is_stream:
        lost = "never sent, or was shorter than its reader expects (by the length that was sent)"
    return Mechanism(
        cause=(
            f"Each of these processes waits {how} that the next one would have to send, and none "
            f"of them is going to: what one of them was to send first was {lost}."
            f"{_standard_input(case)}"
        ),
        advice=(
            "Compare what each side has sent and received at the lines above: every request needs "
            "exactly one answer, also where a task fails or has no result, and every reader its "
            f"own message that tells it to end. {_ADVICE_STREAM if is_stream else ''}"
            f"{_ADVICE_QUEUE if any(map(gets_from_queue, case.waiters)) else ''}"
            f"{_WITH_TIMEOUT_STREAM if is_stream else _WITH_TIMEOUT}"
            if not _standard_input(case)
            else _ADVICE_INPUT
        ),
        headline=f"{_names(case)} all wait to receive, and none of them sends.",
    )


_ADVICE_INPUT = (
    "Close the input of the other program (process.stdin.close()) once all is written, or use "
    "communicate(input), which writes, closes and reads. A program that answers line by line has "
    "to flush its output after each."
)
_ADVICE_QUEUE = (
    "An item that cannot be pickled is lost in Queue.put with a traceback on standard error. "
)
_ADVICE_STREAM = (
    "A length has to count bytes (len(data) after encode()), and send() may send only a part: use "
    "sendall(). "
)
_WITH_TIMEOUT = "With get(timeout=...) or poll(timeout) the wait becomes an error."
_WITH_TIMEOUT_STREAM = "With settimeout() the wait becomes an error."


def _standard_input(case: Case) -> str:
    """That a process reads its standard input to the end, where one of a cycle does.

    One that takes it line by line and has already written something answers each line.
    """
    for each, after in zip(case.waiters, (*case.waiters[1:], case.waiters[0]), strict=True):
        wait = each.thread.waits_on if each.thread is not None else None
        if wait is not None and wait.fds == (0,) and each.edge.kind == "pipe-read":
            if _reads_by_line(case, each) and each.process.sample.written_bytes:
                continue
            return (
                f" {called(each.process)} reads its standard input, and gets an end of file only "
                f"once {called(after.process)} closes the writing end."
            )
    return ""


_READS_A_LINE = re.compile(r"\breadline\(|\binput\(|\bin (?:sys\.)?stdin\b")
_WAITS_FOR_FILES = re.compile(r"\b(?:poll|select|wait)\(|\.run(?:_\w+)?\(")
"""In a statement that waits for one of several descriptors, or runs an event loop."""


def _reads_by_line(case: Case, waiter: Waiter) -> bool:
    """Whether the statement that a process is at reads a line, or goes through lines."""
    frame = user_frame(waiter.thread.stack) if waiter.thread is not None else None
    line = source_of(case.index, frame) if frame is not None else None
    return line is not None and any(
        _READS_A_LINE.search(one.text) for one in (line.statement, *line.within[-1:])
    )


def _buffered_input(case: Case) -> Mechanism | None:
    """A process that waits in poll() for what it has most likely read into a buffer already.

    The one that it waits for has written something, and does not run.
    """
    for each, after in zip(case.waiters, (*case.waiters[1:], case.waiters[0]), strict=True):
        frame = user_frame(each.thread.stack) if each.thread is not None else None
        line = source_of(case.index, frame) if frame is not None else None
        reads = marks(case.index, "buffered-read", each.process)
        if frame is None or line is None or not reads:
            continue
        if not _WAITS_FOR_FILES.search(line.statement.text):
            continue
        if after.process.sample.written_bytes == 0:
            continue  # what it has printed is in its own buffer
        mark = next((one for one in reads if one.file == line.file), reads[0])
        name, _, registered = mark.about.rpartition(", ")
        file = mark.file.rpartition("/")[2]
        waiter, other = called(each.process), called(after.process)
        return Mechanism(
            cause=(
                f"Most likely what {waiter} waits for has already arrived, and is in its own "
                f"buffer: {mark_words(mark)} takes all that has come from the pipe or socket, and "
                f"returns the first part of it. The wait at {frame_words(frame)} sees only what "
                f"the kernel still has ({file}:{registered} gives it the descriptor), and where "
                f"{other} has sent two messages in one piece, the second one is not there any "
                f"more. {other} has sent all, and waits for what comes next."
            ),
            advice=(
                "Wait only when no complete message is left: read with os.read() or recv() into a "
                "buffer of your own, take every complete line out of it, and call poll() or "
                f"select() only then. Or read {name} in a thread of its own, with no poll(); or "
                "start the program with bufsize=0 and read bytes. A time limit of the wait loses "
                "the message instead; flushing more in the other program, or closing its input, "
                "does not help."
            ),
            headline=f"{_names(case)} all wait to receive, and none of them sends.",
        )
    return None


def _unflushed_input(case: Case) -> Mechanism | None:
    """A program whose input another one writes, by the source, without ever flushing it."""
    for each, after in zip(case.waiters, (*case.waiters[1:], case.waiters[0]), strict=True):
        wait = each.thread.waits_on if each.thread is not None else None
        written = marks(case.index, "unflushed", after.process)
        if wait is None or wait.fds != (0,) or each.edge.kind != "pipe-read" or not written:
            continue
        child, parent, mark = called(each.process), called(after.process), written[0]
        return Mechanism(
            cause=(
                f"{child} waits for input, and {parent} for the answer to it. Most likely what "
                f"{parent} has written is still in its own buffer: {mark_words(mark)} writes to a "
                f"pipe in blocks, and nothing in {mark.file.rpartition('/')[2]} flushes it."
            ),
            advice=(
                f"Call {mark.about}.flush() after each message, or start it with bufsize=1 "
                "and text=True (each line is sent), or bufsize=0 for bytes. Closing the input "
                "would send it as well, but nothing after it. Flushing the output of the other "
                "program does not help: it has received nothing yet."
            ),
            headline=f"{_names(case)} all wait to receive, and none of them sends.",
        )
    return None


def _buffered_output(case: Case) -> Mechanism | None:
    """A program that is asked line by line, and whose output the one that asks waits for.

    Python writes what goes to a pipe in blocks, unless it is flushed, or PYTHONUNBUFFERED or `-u`
    is given.
    """
    for each, after in zip(case.waiters, (*case.waiters[1:], case.waiters[0]), strict=True):
        wait = each.thread.waits_on if each.thread is not None else None
        theirs = after.thread.waits_on if after.thread is not None else None
        if wait is None or theirs is None or wait.fds != (0,) or theirs.kind != "pipe-read":
            continue
        sample = each.process.sample
        writes = any(link.fd == 1 and link.target in theirs.targets for link in sample.links)
        is_unbuffered = "-u" in sample.cmdline[1:2] or bool(
            sample.environment.get("PYTHONUNBUFFERED")
        )
        by_line = _reads_by_line(case, each)
        if not (writes and by_line and sample.is_python) or is_unbuffered:
            continue
        child, parent = called(each.process), called(after.process)
        return Mechanism(
            cause=(
                f"{child} waits for a line of its standard input, which {parent} has to send, and "
                f"{parent} waits for output of {child}. Most likely {child} has printed that, and "
                "it is still in its buffer: Python writes what goes to a pipe in blocks of 8 KiB, "
                f"and not line by line as to a terminal. Otherwise {child} prints it only after "
                "the line that it waits for."
            ),
            advice=(
                f"Flush what {child} prints: print(..., flush=True), sys.stdout.flush() or "
                "sys.stdout.reconfigure(line_buffering=True), or start it with -u or "
                "PYTHONUNBUFFERED=1. bufsize=1 of Popen concerns only what the parent writes."
            ),
            headline=f"{_names(case)} all wait to receive, and none of them sends.",
        )
    return None


def _reads_a_stream(waiter: Waiter) -> bool:
    """Whether code of the program itself reads a socket, and no Connection or Queue does."""
    frames = own_frames(waiter.thread.stack)[:1] if waiter.thread is not None else ()
    is_own = bool(frames) and (not is_library(frames[0]) or calls(frames, "/socket.py:readinto"))
    return waiter.edge.kind == "socket-read" and is_own


def _step_by_step(case: Case) -> Mechanism | None:
    """A cycle of different waits: what each process needs of the next one."""
    waiters = case.waiters
    if len(waiters) < 2:
        return None
    steps = [
        f"{called(each.process)} continues when {called(after.process)} {_needed_action(each)}"
        for each, after in zip(waiters, (*waiters[1:], waiters[0]), strict=True)
    ]
    return Mechanism(
        cause=f"{'; '.join(steps[:NAMED])}. None of this happens, because each of them waits.",
        advice=(
            "Break the cycle at one of the lines above: let one of these processes do its part "
            "before it waits, or wait with a timeout and then do it."
        ),
        headline=(
            f"{_names(case)} wait for each other: "
            f"{'; '.join(f'{called(m.process)} for {awaited(case, m)}' for m in waiters[:NAMED])}."
        ),
    )


def _needed_action(waiter: Waiter) -> str:
    """What another process would have to do for one to continue."""
    edge = waiter.edge
    by_name = next((words for name, words in _ACTIONS if edge.what.startswith(name)), None)
    if by_name is not None:
        return by_name
    return _ACTIONS_BY_KIND.get(edge.kind, f"ends its wait for {edge.what}")


_ACTIONS = (
    (RESULT, "returns from the call that it runs"),
    (POOL_RESULT, "returns from the call that it runs"),
    (POOL_END, "returns from the call that it runs"),
    (BARRIER, "reaches the barrier"),
    (FULL_QUEUE, "gets an item from that queue"),
    (QUEUE_LOCK, "has got its item from that queue"),
    (EVENT, "sets or notifies it"),
    ("the lock on ", "releases that lock"),
    ("the other ranks in ", "takes part"),
    ("batch", "sends that batch"),
    ("a batch", "sends a batch"),
)
_ACTIONS_BY_KIND: Mapping[str, str] = {
    "pipe-read": "writes to the pipe it reads",
    "socket-read": "sends to the socket it reads",
    "poll": "sends to what it reads",
    "pipe-write": "reads from the pipe it writes to",
    "socket-write": "reads from the socket it writes to",
    "semaphore": "releases that semaphore",
    "child": "exits",
}

# --- cycles of ranks -----------------------------------------------------------------------------

_TAKES_A_GROUP = re.compile(r"\b(?:\w+_)?group\b", re.IGNORECASE)
"""In the statement of a call: a process group is passed to it."""


def _all_send(case: Case) -> Mechanism | None:
    """Every rank of a cycle is in a send to another one."""
    if not case.waiters or not all(each.edge.what == f"{OTHERS}send" for each in case.waiters):
        return None
    return Mechanism(
        cause=(
            "Each of these ranks is in send, and none is in recv. A send of more than fits into "
            "the buffers on the way returns only when its receiver has called recv."
        ),
        advice=(
            "Let every second rank receive before it sends, or start both with isend and irecv "
            "(batch_isend_irecv) and wait for them afterwards."
        ),
        headline="all these ranks are in send, and none of them receives.",
    )


def _all_at_one_call(case: Case) -> Mechanism | None:
    """Every rank of a cycle has called the same collective at the same line, with some group."""
    what = case.waiters[0].edge.what if case.waiters else ""
    frames = {user_frame(each.thread.stack) for each in case.waiters if each.thread is not None}
    frame = frames.pop() if len(frames) == 1 else None
    if frame is None or not what.startswith(OTHERS):
        return None
    if len(case.waiters) < 2 or any(each.edge.what != what for each in case.waiters):
        return None
    processes = [each.process for each in case.waiters]
    records = [(each, record) for each in processes if (record := unfinished(each)) is not None]
    are_several = len({record.group for _, record in records}) > 1
    source = source_of(case.index, frame)
    is_passed = source is not None and _TAKES_A_GROUP.search(source.statement.text) is not None
    if not are_several and (not is_passed or len(records) == len(processes)):
        return None
    name, loop = what.removeprefix(OTHERS), loop_around(case.index, (frame,))
    ranks = [each for each in case.index.snapshot.living() if current_collective(each) == name]
    order = f" (`{loop[1].text}`, line {loop[1].line})" if loop is not None else ""
    different = "for different process groups"
    return Mechanism(
        cause=(
            f"{name} ends when all ranks of its process group have called it for that group. "
            f"{all_called(ranks, NAMED)} have called it at one line, "
            + (different if are_several else f"most likely {different}, which are passed to it")
            + f": they use their groups in a different order{order}, and each waits in one group "
            "for a rank that waits in another."
        ),
        advice=(
            "Use the groups in the same order on all ranks: go through a fixed list, not through a "
            "set or a list that is sorted by what a rank has computed. Or start the calls with "
            "async_op=True and wait for all of them afterwards."
        ),
        evidence=tuple(
            f"recorded by {called(each)}: {record.words}" for each, record in records[:NAMED]
        ),
        headline=(
            f"{len(ranks)} ranks are in {name} at {frame_words(frame)} and do not meet there: "
            f"{'' if are_several else 'most likely '}they have called it {different}."
        ),
    )


def _at_different_groups(case: Case) -> Mechanism | None:
    """Every rank of a cycle is in a collective, at different lines and of different groups."""
    processes = [each.process for each in case.waiters]
    if len(processes) < 2 or not all(each.edge.what.startswith(OTHERS) for each in case.waiters):
        return None
    found = groups_apart(case.index, processes)
    if found is None:
        return None
    likely = "" if found.is_recorded else "most likely "
    return Mechanism(
        cause=found.cause,
        advice=found.advice,
        headline=(
            f"{_names(case)} wait for each other in collectives of {likely}different process "
            "groups."
        ),
    )


# --- dead ends -----------------------------------------------------------------------------------


def _own_lock(case: Case) -> Mechanism | None:
    if case.chain.conclusion not in (OWN_LOCK, OWN_BLOCK):
        return None
    if (interrupted := _interrupted(case)) is not None:
        return interrupted
    last = case.waiters[-1] if case.waiters else None
    blocked = self_blocked(case.index, last.process.process) if last is not None else None
    nested = nested_in(case.index, blocked.thread) if blocked is not None else None
    if nested is not None:
        outer = f"`{nested.taken.text}` of line {nested.taken.line} in {nested.outer.function}()"
        before = (
            f"It is still inside of {outer}, which took the lock,"
            if nested.is_block
            else f"It has taken the lock by {outer}, has not released it"
        )
        how = (
            f"{before} and waits at {frame_words(nested.inner)} to take it again: a Lock cannot be "
            f"taken twice, not even by its holder.{_way_of(nested)}"
        )
        if last is not None and blocked is not None and blocked.thread is not last.thread:
            how = f"Its thread {blocked.thread.name} blocks itself. {how}"
    else:
        how = (
            "The thread is in the same function twice and waits for a lock that no other process "
            "or thread can hold: it took the lock before, and a Lock cannot be taken twice, not "
            "even by its holder."
        )
    return Mechanism(
        cause=how,
        advice=(
            "Use an RLock, or release the lock before the call that takes it again; a private "
            "function that expects the lock to be held avoids the second acquire."
        ),
    )


def _way_of(nested: Nested) -> str:
    """The calls by which a function comes back to a lock that it holds."""
    between = [each.function for each in reversed(nested.way[1:-1])]
    if not between:
        return ""
    return f" It comes there by way of {'(), '.join(between)}()."


def _interrupted(case: Case) -> Mechanism | None:
    """The handler of a signal waits for what the function that it has interrupted holds."""
    last = case.waiters[-1] if case.waiters else None
    if last is None or last.thread is None:
        return None
    return waits_for_an_interrupted_holder(last.process, last.thread)


def _own_log(case: Case) -> Mechanism | None:
    if case.chain.conclusion != OWN_LOG:
        return None
    found = marks(case.index, "queue-handler")
    where = f" {mark_words(found[0])} adds that handler." if len(found) == 1 else ""
    return Mechanism(
        cause=(
            "put() of a queue of multiprocessing holds a lock of the queue while it starts its "
            "feeder thread, and logs that by multiprocessing's own logger. A handler of that "
            f"logger puts the record into the queue again, and waits for the lock for ever.{where}"
        ),
        advice=(
            "Add the QueueHandler to a logger of your own in place of "
            "multiprocessing.get_logger(), or set the level of that logger above DEBUG."
        ),
    )


def _own_queue(case: Case) -> Mechanism | None:
    if case.chain.conclusion != OWN_QUEUE:
        return None
    return Mechanism(
        cause=(
            "The thread was inside of a method of queue.Queue, which holds the lock of the queue, "
            "when a function that uses the same queue interrupted it. That lock cannot be taken "
            "twice, not even by its holder."
        ),
        advice=(
            "Use queue.SimpleQueue, whose put() may be called from signal handlers and finalizers; "
            "or only set a flag there, and do the rest in the main loop."
        ),
    )


def _only_thread(case: Case) -> Mechanism | None:
    if case.chain.conclusion != ONLY_THREAD:
        return None
    if (interrupted := _interrupted(case)) is not None:
        return interrupted
    last = case.waiters[-1].thread if case.waiters else None
    if last is not None and runs_event_loop(last):
        evidence = tuple(_frames_of_main(case))
        cause = f"{LOOP_BLOCKED} {LOCK_IN_COROUTINE}"
        return Mechanism(cause=cause, advice=ADVICE_LOOP, evidence=evidence)
    return Mechanism(
        cause=(
            "A Lock that is taken twice by one thread blocks it for ever, also where the second "
            "time is in a function that has interrupted the first: a signal handler, a finalizer "
            "or a callback. A thread that ends without releasing a lock leaves it locked."
        ),
        advice=(
            "Release the lock in a with or finally block. Where the functions at the lines of this "
            "stack call each other, use an RLock; in a signal handler only set a flag."
        ),
        evidence=tuple(_frames_of_main(case)),
    )


def _frames_of_main(case: Case) -> Iterator[str]:
    """The program's own frames of a thread that waits, the innermost first."""
    last = case.waiters[-1] if case.waiters else None
    frames = own_frames(last.thread.stack) if last is not None and last.thread is not None else ()
    mine = [frame_words(frame) for frame in frames if not is_library(frame)]
    if len(mine) > 1:
        yield f"its stack, innermost first: {' <- '.join(mine[:NAMED])}"


def _no_result(case: Case) -> Mechanism | None:
    """A result that no thread of the process returns."""
    at_end = case.index.snapshot.get(case.chain.links[-1].process)
    found = abandoned(case.index, at_end.process) if at_end is not None else None
    if found is None or found.words != case.chain.conclusion:
        return None
    if found.kind == "no-worker" and at_end is not None:
        return _without_workers(case.index, at_end)
    if found.kind == "no-thread" and at_end is not None:
        ended = _left_pool(case.index, at_end)
        if ended is not None:
            return ended
    cause, advice = _NO_RESULT[found.kind]
    nested = nested_calls(case.index, at_end.process) if at_end is not None else None
    if nested is not None:
        return _nested(case.index, nested, cause, advice)
    headline = ""
    if found.kind == "lost-calls" and at_end is not None:
        at = at_line(main_thread(at_end))
        headline = (
            f"{called(at_end)} waits{at} for the end of an executor that has lost calls: all its "
            "workers are idle."
        )
    main = main_thread(at_end) if at_end is not None else None
    module = imported_at(main) if main is not None and found.kind == "importing" else None
    if module is not None and at_end is not None:
        headline = (
            f"{called(at_end)} waits{at_line(main)} while it imports {_module(module)} (line "
            f"{module.line}), and a thread that is to do what it waits for waits for that import."
        )
        return Mechanism(cause, advice, evidence=(found.words,), headline=headline)
    return Mechanism(cause=cause, advice=advice, headline=headline)


def _nested(index: Index, nested: NestedCalls, cause: str, advice: str) -> Mechanism:
    """All workers of a pool run calls that wait for further calls of the same pool."""
    count, call, first = len(nested.workers), frame_words(nested.call), called(nested.workers[0])
    inner = [
        f"{mark_words(each)} submits the inner calls"
        for each in marks(index, "submits")
        if (each.file, each.function) == (nested.call.file, nested.call.function)
        and each.statement.line <= nested.call.line
    ]
    those = f"all {count} workers wait" if count > 1 else "the only worker waits"
    return Mechanism(
        cause,
        advice,
        evidence=(
            f"{first} runs a call that is at {call}, and waits in {frame_words(nested.waits)}",
            *(
                f"so {'does' if len(others) == 1 else 'do'} {all_called(others, NAMED)}"
                for others in [nested.workers[1:]]
                if others
            ),
            *inner[-1:],
        ),
        headline=(
            f"{those} at {call}, inside of a call, for results of further calls of the same "
            "workers, and none is free to run these."
        ),
    )


def _module(frame: Frame) -> str:
    """The file of a module, without its folder."""
    return frame.file.rpartition("/")[2]


_RECYCLES = (3, 11), (3, 15)
"""The first release in which ProcessPoolExecutor has max_tasks_per_child, and the first of which
every final release replaces such workers: gh-115634, fixed in 3.14.7 and in 3.13 in July 2026."""


def _left_pool(index: Index, process: Process) -> Mechanism | None:
    """A result that is awaited after the `with` block of its Pool, which has ended the Pool."""
    thread = main_thread(process)
    frames = own_frames(thread.stack) if thread is not None else ()
    blocks = marks(index, "pool-block", process)
    if len(blocks) != 1 or main_shape(process) != "pool-result":
        return None
    first, _, last = blocks[0].about.partition("-")
    if any(f.file == blocks[0].file and int(first) <= f.line <= int(last) for f in frames):
        return None  # it is in the block still
    block = mark_words(blocks[0])
    return Mechanism(
        cause=(
            f"Most likely the Pool has ended with its block: at the end of {block}, which "
            f"{called(process)} has left, terminate() kills the workers and ends the thread that "
            "receives results. What had not arrived by then is lost, and nothing is raised."
        ),
        advice=(
            "Take all results inside of that block: call get() there, or pool.close() and "
            "pool.join() as its last lines. A longer wait or more workers do not help. An executor "
            "of concurrent.futures waits for its tasks at the end of its block."
        ),
        headline=f"{called(process)} waits for a result of a Pool whose with block it has left.",
    )


def _without_workers(index: Index, process: Process) -> Mechanism:
    """A process pool without a worker whose manager thread starts none and calls nothing broken.

    A worker that fails breaks a ProcessPoolExecutor at once: BrokenProcessPool is the result of all
    its futures. So these ended as they were told to, after max_tasks_per_child tasks.
    """
    gone = [each for each in children_started_by(index, process) if each.ended is not None]
    failed = [each for each in gone if each.ended and death_of(each.ended) not in _AS_TOLD]
    version = process.hook.python or process.sample.python_version or ""
    is_std = any(calls(own_frames(t.stack), MANAGER_WAITS) for t in process.threads)
    if failed or not is_std or not _may_fail_to_replace(version):
        return Mechanism(
            cause=(
                "All workers of the process pool have ended, and its manager thread waits for "
                "results that none of them sends."
            ),
            advice=(
                "Read standard error for why the workers ended, and wait with result(timeout=...): "
                "after such a wait the executor has to be made anew."
            ),
            evidence=ended_words(failed),
        )
    of_python = f" (this is {version})" if version else ""
    return Mechanism(
        cause=(
            "The workers ended as they were told to, else the futures would have raised "
            "BrokenProcessPool: ProcessPoolExecutor(max_tasks_per_child=...) ends each worker "
            "after so many tasks. CPython from 3.11 on may then start no other one while tasks "
            f"are left (gh-115634; fixed in 3.14.7, and in 3.13 in July 2026){of_python}. So the "
            "tasks that are left are never run."
        ),
        advice=(
            "Leave max_tasks_per_child out, or use multiprocessing.Pool(maxtasksperchild=...), "
            "which replaces its workers, or a CPython with the fix. If workers have to be renewed "
            "for their memory, make a new executor for each part of the tasks."
        ),
        evidence=ended_words(gone),
        headline=(
            f"{called(process)} waits{at_line(main_thread(process))} for tasks of a process pool "
            "whose workers have all ended and are not replaced."
        ),
    )


def _may_fail_to_replace(version: str) -> bool:
    """Whether a release, `3.11` or `3.14.2`, may not replace workers; true if it is unknown."""
    numbers = tuple(int(each) for each in version.split(".") if each.isdigit())
    if len(numbers) < 2:
        return True
    return _RECYCLES[0] <= numbers[:2] < _RECYCLES[1] and numbers < (3, 14, 7)


_AS_TOLD: frozenset[Death] = frozenset(("normal", "unknown"))
_NO_RESULT: Mapping[Kind, tuple[str, str]] = {
    "importing": (
        "The code of a module runs while it is imported, under the lock of that module. It starts "
        "work in a pool and waits for it, and a thread of the pool needs the same module, to find "
        "the function that it sends or runs: each waits for the other.",
        "Do not start work in a pool at the top level of a module: put it into a function that is "
        "called after the import, from under if __name__ == '__main__'.",
    ),
    "all-wait": (
        "A call that runs in a thread pool has submitted another call to it and waits for that "
        "one. Once all threads of the pool do so, none is left to run what they wait for.",
        "Do not wait inside of a pool for a call of the same pool: do the inner work directly, "
        "give it a pool of its own, or return and let the caller combine the results.",
    ),
    "nested": (
        "A call that runs in a worker has submitted further calls to the same workers and waits "
        "for their results. It keeps its worker meanwhile. Once as many such calls run as there "
        "are workers, what they wait for stays in the queue and is never run.",
        "Do not wait inside of a call for calls of the same workers: submit the inner calls from "
        "the main process and combine the results there, run them directly in the outer call, or "
        "give them workers of their own. More workers help only where they are more than the "
        "outer calls that are submitted at once; a timeout or a restart does not.",
    ),
    "not-forked": (
        "The pool or executor object is a copy from before the fork. Its threads, which hand out "
        "calls and receive results, exist in the parent only: what is submitted here is never run.",
        "Make the pool in the process that uses it, after the fork, and do not use a global one "
        "from inside of its own workers; or start the processes with spawn.",
    ),
    "no-thread": (
        "Results are received by a thread of the same process, and no such thread is here: it has "
        "ended, by an exception or by a shutdown of the pool, or it did not survive a fork.",
        "Look for a traceback of that thread on standard error. Make the pool in the process that "
        "uses it, keep it open until all results are there, and wait with result(timeout=...).",
    ),
    "lost-calls": (
        "The manager thread of the ProcessPoolExecutor ends when no call is pending, and some are "
        "that never reached a worker. The feeder thread drops a call that it cannot pickle (a "
        "lambda, a local function, a lock or an open file in its arguments or in the object of "
        "a bound method). After shutdown(cancel_futures=True) nothing tells the executor of that, "
        "and its wait never ends (CPython 3.9 and newer).",
        "Make what is submitted picklable: a function of a module in place of a lambda, also "
        "inside of the object whose method is submitted; pickle.dumps() of it shows the error. "
        "Until then do not combine cancel_futures=True with wait=True: cancel the futures that "
        "are kept, then call shutdown().",
    ),
}


def _unsent_items(case: Case) -> Mechanism | None:
    at_end = case.index.snapshot.get(case.chain.links[-1].process)
    if at_end is None or main_shape(at_end) != "joins-queue":
        return None
    return Mechanism(
        cause=(
            "Before it exits, a process that has put items on a multiprocessing queue waits until "
            "all of them are in the pipe, and a pipe holds 64 KiB. No other process can read the "
            "pipe any more."
        ),
        advice=(
            "Read the queue until it is empty before the program ends, or call its "
            "cancel_join_thread() where the items may be lost."
        ),
    )


def _reads_after_the_last(case: Case) -> Mechanism | None:
    """A process waits to receive, and all processes that it has started have ended."""
    last = case.waiters[-1] if case.waiters else None
    if last is None or last.edge.kind not in READS or last.process.is_gone:
        return None
    children = [
        child
        for child in children_started_by(case.index, last.process)
        if child.role not in SERVICE_ROLES
    ]
    started = sum(note.process == last.process.process for note in case.index.entries("start"))
    is_alone = case.chain.conclusion == NO_WRITER and gets_from_queue(last)
    if not all(child.ended is not None for child in children):
        return None
    if not children and not is_alone:
        return None
    if not children and not started:
        joining = _joined_by_their_parent(case)
        thread = joining[0].thread if joining is not None else None
        if joining is not None and thread is not None and calls(own_frames(thread.stack), _AT_EXIT):
            return _ended_before_its_children(case, joining[0].process, called(last.process))
        leaving = _leaving_parent(case.index, last.process)
        if leaving is not None:
            return _ended_before_its_children(
                case, leaving, called(last.process), is_joined_next=False
            )
        return _reads_alone(called(last.process))
    ends = dict.fromkeys(child.ended.words for child in children if child.ended is not None)
    what = "an item of a queue" if gets_from_queue(last) else "data"
    name = called(last.process)
    return Mechanism(
        cause=(
            f"{name} waits for {what}, and every process that it has started has ended. It waits "
            "for more than they have sent, or something that they sent was lost on its way. A "
            "copy of the writing end is still open, so there is no end of file either."
        ),
        advice=(
            "Count what each process sends. An item that cannot be pickled (a lambda, a lock, an "
            "open file) is lost in Queue.put, with a traceback of the feeder thread on the "
            "standard error of the process that put it. Use get(timeout=...) and check then "
            "whether any process is alive; or a ProcessPoolExecutor, whose futures raise."
        ),
        evidence=(
            f"{counted(len(children), 'process', 'processes')} started by it ended: "
            f"{', '.join(list(ends)[:NAMED])}"
            if children
            else f"its hook noted {counted(started, 'start')} of processes, and all have ended",
        ),
        headline=f"it waits for {what}, and all processes that it has started have ended.",
    )


def _no_end_of_file(case: Case) -> Mechanism | None:
    """What wrote to a pipe has ended, and copies of the writing end are left that nothing uses."""
    last = case.waiters[-1] if case.waiters else None
    if last is None or last.thread is None:
        return None
    around = surroundings(case.index)
    wait = last.thread.waits_on
    holders = {
        holder
        for channel in (channels_among(wait.targets) if wait is not None else ())
        for holder in around.pipes.writers.get(channel, ())
    }
    is_own = last.edge.kind == "pipe-read" and holders == {last.process.process}
    if not last.edge.what.endswith(UNUSED) and (not is_own or gets_from_queue(last)):
        return None
    open_in = [each for each in case.index.snapshot.living() if each.process in holders]
    idle = [each for each in open_in if each.process != last.process.process]
    gone = ended_holders(around, last.process, last.thread)
    if gets_from_queue(last) and gone:
        return _writer_of_queue_ended(last, gone, idle)
    end = "the other end" if last.edge.kind == "socket-read" else "its writing end"
    those = f"{all_called(gone)}, which had {end}," if gone else f"The process that had {end}"
    copies = "others hold copies of its end" if idle else "it has a copy of its writing end itself"
    name, what = called(last.process), last.edge.what.removesuffix(UNUSED)
    parents = {each.original_parent for each in gone}
    makers = [each for each in open_in if each.process in parents]
    heirs = [each for each in open_in if each.process not in parents]
    return Mechanism(
        cause=(
            f"{those} {'have' if len(gone) > 1 else 'has'} ended. That end is still open in "
            f"{_kept_ends(makers, heirs)}. A reader gets an end of file (EOFError) only once every "
            f"copy is closed, so {name} waits for ever."
        ),
        advice=_close_advice(makers, heirs),
        evidence=(
            *ended_words(gone),
            *(
                f"{called(each)} waits{at_line(main_thread(each))} and holds a copy of the end"
                for each in idle[:NAMED]
            ),
        ),
        headline=(
            f"{name} waits for data on {what}, whose writer has ended, and gets no end of file "
            f"because {copies}."
        ),
    )


def _kept_ends(makers: Sequence[Process], heirs: Sequence[Process]) -> str:
    """In which processes an end is open: in the parent of its writer, and by a fork in others."""
    parts = []
    if makers:
        parts.append(
            f"{all_called(makers)}, which has started its writer and has not closed its own copy"
        )
    if heirs:
        has = "has" if len(heirs) == 1 else "have"
        writes = "writes" if len(heirs) == 1 else "write"
        parts.append(f"{all_called(heirs)}, which {has} it by the fork and never {writes} to it")
    return "; and in ".join(parts)


def _close_advice(makers: Sequence[Process], heirs: Sequence[Process]) -> str:
    """Where to close the copies of an end."""
    if not makers:
        return (
            "Close the ends that a process does not use at the start of each child, not in the "
            "parent only: with fork, each child inherits every end that was made before it. Or "
            "start the processes by spawn, which passes only what they are given. An end mark "
            "(None) as the last message of each writer needs no end of file."
        )
    closes = (
        f"Let {all_called(makers)} close the end that it has given to a child right after the "
        "start of that child"
    )
    if heirs:
        return (
            f"{closes} (before the next one is started: with fork, that inherits every end that is "
            "still open), and each child the ends that it does not use. The end of the writer then "
            "ends the wait, with EOFError."
        )
    return f"{closes}: the end of the writer then ends the wait, with EOFError."


def _writer_of_queue_ended(
    reader: Waiter, gone: Sequence[Process], idle: Sequence[Process]
) -> Mechanism:
    """What put into the queue that a process reads has ended; the others wait as well."""
    name, at, ended = called(reader.process), at_line(reader.thread), all_called(gone, NAMED)
    had = "has" if len(gone) == 1 else "have"
    others = (
        f"{all_called(idle, NAMED)}, which {'has' if len(idle) == 1 else 'have'} this queue too, "
        f"{wait_verb(idle)} for something else and {'puts' if len(idle) == 1 else 'put'} nothing "
        "into it meanwhile. "
    )
    return Mechanism(
        cause=(
            f"{name} waits for an item of a queue. {ended}, which had the queue, {had} ended, and "
            f"the queue is empty. {others if idle else ''}A queue does not report that what put "
            "into it has ended: its reader has the writing end as well, so no end of file comes."
        ),
        advice=(
            "First fix what ended the writer. A reader that takes items of one worker after the "
            "other has to notice such an end: use get(timeout=...) and check is_alive() or "
            "exitcode of that worker, or let each worker put its exception as its last item. "
            "ProcessPoolExecutor and DataLoader do so and raise."
        ),
        evidence=(
            *ended_words(gone),
            *(f"{called(each)} waits{at_line(main_thread(each))}" for each in idle[:NAMED]),
        ),
        headline=f"{name} waits{at} for an item of a queue, and {ended}, which had it, {had} ended",
    )


def _unreceived_end(case: Case) -> Mechanism | None:
    """A process waits for an answer, and has sent the other end in a message that nobody reads."""
    last = case.waiters[-1] if case.waiters else None
    if last is None or last.edge.kind not in ("socket-read", "poll"):
        return None
    if len(case.waiters) < 2 or case.chain.conclusion != NO_WRITER or gets_from_queue(last):
        return None
    before = case.waiters[-2].process
    name, other = called(last.process), called(before)
    return Mechanism(
        cause=(
            f"{name} waits for an answer on a connection of which no other process has the other "
            f"end: the process that was to answer has ended, or has not received that end yet, "
            f"because it has not read the message that contains it. {other} waits for {name} "
            "meanwhile and reads nothing: if it is the one to answer, each of the two has called "
            "the other and waits for it."
        ),
        advice=(
            "Do not wait for the answer of a process that may be waiting for an answer of this "
            "one: send without waiting, serve requests while you wait (in a thread of its own), or "
            "pass what is needed with the first call. With poll(timeout) the wait becomes an error."
        ),
        headline=(
            f"{name} waits for an answer to a message that no process has read, and {other} waits "
            f"for {name}."
        ),
    )


def _reads_alone(name: str) -> Mechanism:
    """A process waits for an item of a queue that no other living process has."""
    return Mechanism(
        cause=(
            f"{name} waits for an item of a queue, and no other living process has that queue: "
            "those that were to put items have ended, or were never started. The process itself "
            "has a copy of the writing end, so there is no end of file either."
        ),
        advice=(
            "Count what each process sends, and read standard error for the traceback of one that "
            "ended early. Use get(timeout=...) and check then whether any process is alive; or a "
            "ProcessPoolExecutor, whose futures raise."
        ),
        headline="it waits for an item of a queue that no other living process has.",
    )


def _no_process_left(case: Case) -> Mechanism | None:
    """A wait for a semaphore, a reader or a writer that no process but the one that waits has."""
    last = case.waiters[-1] if case.waiters else None
    if last is None or last.process.is_gone:
        return None
    advice = _ADVICE_ALONE.get(last.edge.kind)
    if advice is None or case.chain.links[-1].process != last.process.process:
        return None
    if last.edge.what.startswith(FULL_QUEUE):
        return Mechanism(
            cause=(
                f"{called(last.process)} waits for room in a queue with a maxsize, and no other "
                "living process has that queue: those that were to read it have ended, or have "
                "not been started yet."
            ),
            advice=(
                "Start the processes that read the queue before more is put into it than it "
                "holds; check that they live with put(timeout=...), and read standard error for "
                "why they ended."
            ),
            headline="it waits for room in a full queue that no other living process reads.",
        )
    return Mechanism(
        cause=f"{case.chain.conclusion} No process and no thread is left that could end this wait.",
        advice=advice,
    )


_NO_WRITER = (
    "Close the writing end in the process that only reads (and in every process that inherits it), "
    "so that the end of the last writer is an end of file; and wait with poll(timeout) or "
    "get(timeout=...)."
)
_ADVICE_ALONE: Mapping[str, str] = {
    "pipe-read": _NO_WRITER,
    "socket-read": _NO_WRITER,
    "poll": _NO_WRITER,
    "pipe-write": (
        "Close the reading end in the process that only writes, so that the end of the last reader "
        "raises BrokenPipeError; and end this process when its reader has ended."
    ),
    "semaphore": (
        "Find out why the process that should release or set it has ended before that: release "
        "locks in a finally or a with block, and wait with a timeout."
    ),
}

_Way = Callable[[Case], Mechanism | None]
_OF_CYCLES: Sequence[_Way] = (
    dropped_answers,
    _all_write,
    _all_put,
    _all_take_locks,
    _all_acquire,
    _unread_output,
    _too_few_parties,
    _all_at_barrier,
    managed,
    unset_key,
    kept_file_lock,
    _joins_readers,
    _calls_wait_for_items,
    _joins_one_that_waits_for_it,
    _all_send,
    one_at_a_time,
    not_given_back,
    _all_read,
    unreleased,
    _all_at_one_call,
    _at_different_groups,
    _blocked_output,
    _step_by_step,
)
_OF_DEAD_ENDS: Sequence[_Way] = (
    managed,
    both_receive,
    left,
    taken_twice,
    _no_end_of_file,
    _unreceived_end,
    _own_lock,
    _own_log,
    dropped_answers,
    waits_for_own_threads,
    only_a_callback,
    idle_loop,
    _own_queue,
    _only_thread,
    _no_result,
    _unsent_items,
    _reads_after_the_last,
    unset_alone,
    _no_process_left,
)


def _names(case: Case) -> str:
    """The processes of a chain in the order of the tree: one cycle has one headline."""
    waiters = {each.process.process for each in case.waiters}
    return all_called([each for each in case.index.snapshot.processes if each.process in waiters])
