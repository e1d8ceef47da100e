"""Waits for the other end of a pipe, a queue or a lock, which no living process uses any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mpwatch.describe.frames import own_frames
from mpwatch.describe.processes import wait_verb
from mpwatch.describe.waits import FULL_QUEUE
from mpwatch.diagnose.analysis.mechanisms.cases import (
    NAMED,
    Case,
    Mechanism,
    Waiter,
    at_line,
    ended_words,
    gets_from_queue,
)
from mpwatch.diagnose.analysis.mechanisms.joins import (
    AT_EXIT,
    ended_before_its_children,
    joined_by_their_parent,
    leaving_parent,
)
from mpwatch.diagnose.analysis.pipes import channels_among
from mpwatch.diagnose.analysis.process_queries import (
    SERVICE_ROLES,
    all_called,
    called,
    children_started_by,
    counted,
)
from mpwatch.diagnose.analysis.source.lines import mark_words, marks
from mpwatch.diagnose.analysis.stack_patterns import calls, functions_of, main_shape, main_thread
from mpwatch.diagnose.analysis.waits.edges import (
    UNUSED,
    closed_by_parent,
    ended_holders,
    surroundings,
)
from mpwatch.diagnose.analysis.waits.verdicts import NO_WRITER
from mpwatch.model.samples import READS
from mpwatch.model.snapshot import Process
from mpwatch.model.units import seconds_text


def unsent_items(case: Case) -> Mechanism | None:
    """A process that exits waits for room in the pipe of a queue that none reads."""
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


def reads_after_the_last(case: Case) -> Mechanism | None:
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
        joining = joined_by_their_parent(case)
        thread = joining[0].thread if joining is not None else None
        if joining is not None and thread is not None and calls(own_frames(thread.stack), AT_EXIT):
            return ended_before_its_children(case, joining[0].process, called(last.process))
        leaving = leaving_parent(case.index, last.process)
        if leaving is not None:
            return ended_before_its_children(
                case, leaving, called(last.process), is_joined_next=False
            )
        return _reads_alone(called(last.process))
    ends = dict.fromkeys(child.ended.words for child in children if child.ended is not None)
    what = "an item of a queue" if gets_from_queue(last) else "data"
    name = called(last.process)
    cause = (
        f"{name} waits for {what}, and every process that it has started has ended. It waits for "
        "more than they have sent, or something that they sent was lost on its way. A copy of the "
        "writing end is still open, so there is no end of file either."
    )
    advice = (
        "Count what each process sends. An item that cannot be pickled (a lambda, a lock, an open "
        "file) is lost in Queue.put, with a traceback of the feeder thread on the standard error "
        "of the process that put it. Use get(timeout=...) and check then whether any process is "
        "alive; or a ProcessPoolExecutor, whose futures raise."
    )
    if (early := _ended_when_empty(case, last.process, children)) is not None:
        cause, advice = early
    return Mechanism(
        cause=cause,
        advice=advice,
        evidence=(
            f"{counted(len(children), 'process', 'processes')} started by it ended: "
            f"{', '.join(list(ends)[:NAMED])}"
            if children
            else f"its hook noted {counted(started, 'start')} of processes, and all have ended",
        ),
        headline=f"it waits for {what}, and all processes that it has started have ended.",
    )


def _ended_when_empty(
    case: Case, reader: Process, children: Sequence[Process]
) -> tuple[str, str] | None:
    """Why children have ended well before all was done, and what to change.

    The one statement of the program, outside of what the reader itself is in, that takes an empty
    queue for the end of the work.
    """
    done = [each for each in children if each.ended is not None and each.ended.exit_code == 0]
    main = main_thread(reader)
    inside = functions_of(own_frames(main.stack)) if main is not None else set()
    found = [
        each
        for each in marks(case.index, "ends-when-empty")
        if (each.file, each.function) not in inside
    ]
    if not done or len({(each.file, each.statement.line) for each in found}) != 1:
        return None
    mark, those = found[0], all_called(done)
    # In the file that the reader is in, it may be the reader's own.
    is_theirs = mark.file not in {file for file, _ in inside}
    return (
        f"{mark_words(mark)} takes an empty queue for the end of the work. That it is empty says "
        "only that nothing is in it at that moment, while more may still be put: "
        f"{'most likely' if is_theirs else 'possibly'} {those} ended by it, with exit code 0, and "
        f"{called(reader)} waits for what nobody is left to do.",
        f"Let a process end by what it is told and not by an empty {mark.about}: get() without a "
        "time limit, and one end marker (None) for each process, put after the last item. More "
        "processes, or a longer time limit of the one that waits for the results, do not help.",
    )


def no_end_of_file(case: Case) -> Mechanism | None:
    """What wrote to a pipe has ended, and copies of the writing end are left that nothing uses."""
    last = case.waiters[-1] if case.waiters else None
    if last is None or last.thread is None:
        return None
    around = surroundings(case.index)
    wait = last.thread.waits_on
    channels = channels_among(wait.targets) if wait is not None else ()
    holders = {holder for each in channels for holder in around.pipes.writers.get(each, ())}
    is_own = last.edge.kind == "pipe-read" and holders == {last.process.process}
    if not last.edge.what.endswith(UNUSED) and (not is_own or gets_from_queue(last)):
        return None
    open_in = [each for each in case.index.snapshot.living() if each.process in holders]
    idle = [each for each in open_in if each.process != last.process.process]
    closer = closed_by_parent(around, last.process, channels) if idle else None
    if closer is not None:
        return _closed_by_its_writer(case, last, closer, idle)
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


def _closed_by_its_writer(
    case: Case, reader: Waiter, writer: Process, heirs: Sequence[Process]
) -> Mechanism:
    """What wrote to a pipe has closed its end, and a sibling of the reader has a copy of it."""
    name, parent, names = called(reader.process), called(writer), all_called(heirs, NAMED)
    what = reader.edge.what.removesuffix(UNUSED)
    at, is_one = at_line(reader.thread), len(heirs) == 1
    later = [
        each for each in heirs if each.process.start_ticks > reader.process.process.start_ticks
    ]
    ticks = case.index.snapshot.ticks_per_s
    forked = [
        f"{called(each)} was forked "
        f"{seconds_text((each.process.start_ticks - reader.process.process.start_ticks) / ticks)} "
        f"after {name}, holds a copy of the writing end, and waits{at_line(main_thread(each))}"
        for each in later[:NAMED]
    ]
    return Mechanism(
        cause=(
            f"{name} reads to the end of {what}. {parent} has closed its writing end and waits for "
            f"what comes after the end{at_line(main_thread(writer))}, but that end is still open "
            f"in {names}, which {'was' if is_one else 'were'} forked while {parent} had it "
            f"open, inherited it, and most likely never {'writes' if is_one else 'write'} to it. A "
            "reader gets an end of file only once every copy of the writing end is closed, so "
            f"{name} waits for ever, and {parent} with it."
        ),
        advice=(
            f"Let {names} close at {'its' if is_one else 'their'} start what {parent} had open for "
            "other processes, not only the ends of its own pipes (keep a list of them), or start "
            f"{'it' if is_one else 'them'} before the pipe of {name} is made. subprocess.Popen and "
            "start method spawn pass on no other descriptors. A message that says the end needs no "
            "end of file. To flush, a larger pipe, less data or a timeout of join() does not help. "
            f"`ls -l /proc/[0-9]*/fd` shows which processes have {what} open; once {names} "
            f"{'ends' if is_one else 'end'}, {name} goes on."
        ),
        evidence=(f"{parent} has no writing end of {what} any more", *forked),
        headline=(
            f"{name} waits{at} for the end of {what}, which never comes: {parent} has closed it, "
            f"and {names} {'has' if is_one else 'have'} inherited a copy of its writing end."
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


def unreceived_end(case: Case) -> Mechanism | None:
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


def no_process_left(case: Case) -> Mechanism | None:
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
