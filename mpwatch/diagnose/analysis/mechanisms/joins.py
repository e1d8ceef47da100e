"""A process that waits for the exit of another one, which waits for it."""

from __future__ import annotations

from msgspec.structs import replace

from mpwatch.describe.frames import own_frames
from mpwatch.describe.waits import FULL_QUEUE
from mpwatch.diagnose.analysis.exits.kinds import raised_at
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.mechanisms.cases import (
    Case,
    Mechanism,
    Waiter,
    blocked_output_of,
    gets_from_queue,
    has_no_timeout,
    with_sigterm,
)
from mpwatch.diagnose.analysis.mechanisms.taken_items import part_batch
from mpwatch.diagnose.analysis.pipes import READ_BOTH
from mpwatch.diagnose.analysis.process_queries import all_called, called, family_head
from mpwatch.diagnose.analysis.stack_patterns import calls, main_thread
from mpwatch.diagnose.analysis.waits.providers import QUEUE_LOCK, semaphore_uses
from mpwatch.diagnose.analysis.waits.threads import others_that_wait, sentence
from mpwatch.diagnose.known_errors import evidence_of, place_of
from mpwatch.model.cmdline import python_program
from mpwatch.model.samples import READS
from mpwatch.model.snapshot import Process

AT_EXIT = "util.py:_exit_function"
"""What joins the children of a program that has come to its end (multiprocessing)."""


def joins_readers(case: Case) -> Mechanism | None:
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


def joins_one_that_waits_for_it(case: Case) -> Mechanism | None:
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
        found = part_batch(case) or joins_a_reader(case, joining, child)
    if found is None:
        return None
    cause, advice = with_sigterm(child.process, found.cause, found.advice)
    return replace(found, cause=cause, advice=advice)


def _joins_a_writer(joining: Waiter, child: Waiter) -> Mechanism:
    """The child sends what its parent does not read, since it waits for the child's exit."""
    parent, name = called(joining.process), called(child.process)
    stream = blocked_output_of(child)
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
        is_certain=has_no_timeout(child),
    )


def joins_a_reader(case: Case, joining: Waiter, child: Waiter) -> Mechanism:
    """The child waits for what its parent would send."""
    parent, name = called(joining.process), called(child.process)
    if joining.thread is not None and calls(own_frames(joining.thread.stack), AT_EXIT):
        return ended_before_its_children(case, joining.process, name)
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


def leaving_parent(index: Index, process: Process) -> Process | None:
    """The process that started this one, if its main thread has come to its end and joins others.

    It has closed its queues by then, so that it is not found among those that have them.
    """
    parent = family_head(index, process)
    thread = main_thread(parent) if parent is not None and not parent.is_gone else None
    is_leaving = thread is not None and calls(own_frames(thread.stack), AT_EXIT)
    return parent if is_leaving else None


def ended_before_its_children(
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


def joined_by_their_parent(case: Case) -> tuple[Waiter, Waiter] | None:
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
