"""Pipes of which a process has an end open that it does not use.

The reading end, so that a full pipe is not read; or the writing end, so that its reader gets no end
of file.
"""

from __future__ import annotations

from mpwatch.describe.frames import own_frames
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.mechanisms.cases import Mechanism, at_line
from mpwatch.diagnose.analysis.pipes import KeptOutput, channels_among, output_of, pipes_among
from mpwatch.diagnose.analysis.process_queries import SERVICE_ROLES, all_called, called
from mpwatch.diagnose.analysis.stack_patterns import calls, main_thread, writes_output
from mpwatch.diagnose.analysis.stalls.at_work import does
from mpwatch.diagnose.analysis.stalls.jobs_at_rest import SHOWN_WAITERS
from mpwatch.diagnose.analysis.stalls.lock_holders import is_held_lock
from mpwatch.diagnose.analysis.waits.blockages import Blockage
from mpwatch.diagnose.analysis.waits.edges import surroundings
from mpwatch.model.samples import READS
from mpwatch.model.snapshot import Process


def is_unread(blockage: Blockage) -> bool:
    """Whether a process waits for room in a pipe whose reader does something else than compute.

    A producer that is ahead of a consumer that computes waits by design.
    """
    edge = blockage.edge
    return edge is not None and edge.kind == "pipe-write" and blockage.reason != "computes"


def is_output(index: Index, blockage: Blockage) -> bool:
    """Whether the pipe is standard output or error of the process that writes: no queue of work."""
    edge = blockage.edge
    process = index.snapshot.get(edge.waiter) if edge is not None else None
    return process is not None and writes_output(process)


def unread_words(blockage: Blockage) -> str:
    """The full pipe to which a process writes, and which of its outputs that is."""
    edge = blockage.edge
    what = edge.what.removeprefix("a reader of ") if edge is not None else "a pipe"
    writer = next((each for each in blockage.waiters if edge and each.process == edge.waiter), None)
    thread = main_thread(writer) if writer is not None else None
    wait = thread.waits_on if thread is not None else None
    pipes = channels_among(wait.targets) if wait is not None else ()
    stream = output_of(writer, pipes[0]) if writer is not None and pipes else ""
    return f"its {stream}, {what}" if stream else what


def cause_of_pipe(index: Index, blockage: Blockage) -> str | None:
    """Why a pipe is full or gets no end of file; `None` for other waits."""
    edge, end = blockage.edge, called(blockage.process)
    if edge is None:
        return None
    if is_unread(blockage):
        what = edge.what.removeprefix("a reader of ")
        return (
            f"{what} is full, and {end}, which has its reading end, has read nothing from it for "
            f"{index.lasting(blockage.waited_s)}. The process that writes continues only when that "
            "process reads: a pipe holds 64 KiB."
        )
    parent = left_by(index, blockage)
    if parent is not None:
        return (
            f"{called(parent)} has ended. {end}, which it started, has inherited the writing end "
            f"of {edge.what} and still has it open, so its reader gets no end of file."
        )
    heirs = ended_writers(index, blockage)
    if heirs and not is_held_lock(index, blockage):
        have = "have" if len(heirs) > 1 else "has"
        return (
            f"{end} has the writing end of {edge.what} open, and {does(blockage)}. If it "
            f"is not the one to write, it has inherited that end at its fork: {all_called(heirs)} "
            f"{have} ended, and a reader gets an end of file (EOFError) only once every copy of "
            "the writing end is closed."
        )
    return None


def left_outputs(index: Index, blockage: Blockage) -> str:
    """The pipes for which an event loop waits and to which no process of the job can write.

    Without standard input, and empty where not all descriptors are known.
    """
    thread, around = blockage.thread, surroundings(index)
    wait = thread.waits_on if thread is not None else None
    if thread is None or wait is None or wait.kind != "poll" or not around.is_complete:
        return ""
    if not calls(own_frames(thread.stack), "asyncio/base_events.py:_run_once"):
        return ""
    fds = blockage.process.sample.fds
    links = (fds.links if fds is not None else None) or ()
    given = {link.channel for link in links if link.fd == 0}
    pipes = [
        pipe
        for pipe in pipes_among(wait.targets)
        if pipe not in given and not around.pipes.writers.get(pipe)
    ]
    return " and ".join(map(around.pipes.words, pipes))


ADVICE_LEFT_OUTPUTS = (
    "Find that process (ls -l /proc/*/fd, grep for the number of the pipe). Put the time limit "
    "around communicate() itself, start commands in a session of their own (start_new_session="
    "True) and end the whole group with os.killpg, or give what stays in the background an output "
    "of its own (> file 2>&1 &). A longer limit for the exit of the command does not help."
)


def left_by(index: Index, blockage: Blockage) -> Process | None:
    """The ended process from which the last one has the pipe's end for which its reader waits.

    Returns:
        A child of the reader that has ended and has started the last process; `None` otherwise.
    """
    edge = blockage.edge
    if edge is None or edge.kind not in ("pipe-read", "poll"):
        return None
    end, parent = blockage.process, index.snapshot.get(blockage.process.original_parent)
    if parent is None or end.process not in edge.providers:
        return None
    has_ended = parent.is_gone or parent.sample.state == "Z"
    return parent if has_ended and parent.sample.parent_pid == edge.waiter.pid else None


def ended_writers(index: Index, blockage: Blockage) -> list[Process]:
    """Ended processes that may have been the writers of the pipe that a process reads to its end.

    Returns:
        Those of the same parent as the reader, if the last process was forked and may have only
        inherited the writing end; nothing for a queue, whose readers see no end of file.
    """
    edge = blockage.edge
    if edge is None or edge.kind not in READS:
        return []
    reader, end = index.snapshot.get(edge.waiter), blockage.process
    thread = main_thread(reader) if reader is not None else None
    if reader is None or thread is None or end.process not in edge.providers:
        return []
    if end.sample.start_method != "fork" or calls(own_frames(thread.stack), "queues.py:get"):
        return []
    return [
        each
        for each in index.snapshot.processes
        if (each.ended is not None or each.sample.state == "Z")
        and each.role not in SERVICE_ROLES
        and each.sample.parent_pid in (reader.sample.parent_pid, reader.pid)
    ]


ADVICE_OPEN_END = (
    "Give a process that stays behind an output of its own (stdout=subprocess.DEVNULL or a file, "
    "start_new_session=True), or end it with its parent. Or do not read until the end of file: "
    "wait for the child itself, then read what is there."
)
ADVICE_INHERITED = (
    "Make each pipe right before the processes that use it, and close in every process the ends "
    "that it does not use (also in those that are forked later or earlier for something else). Or "
    "send an item that tells the reader to end; or start processes by spawn, which inherits "
    "nothing that was not passed."
)
ADVICE_UNREAD = (
    "Read it for as long as the other process runs: in a thread of its own, or with communicate() "
    "where it is the output of a subprocess. Or write the output to a file."
)


def reads_a_kept_output(index: Index, kept: KeptOutput, for_s: float) -> Mechanism:
    """Why a process that reads to the end of an output waits, where orphans keep that open."""
    reader, child = kept.reader, kept.child
    ended = child.ended if child is not None else None
    is_killed = ended is not None and ended.signal is not None
    command = "a command" if child is None else called(child)
    have = "has" if len(kept.keepers) == 1 else "have"
    names = all_called(kept.keepers, SHOWN_WAITERS)
    started = "it" if child is None else called(child)
    pipes = " and ".join(f"pipe {each}" for each in kept.pipes)
    return Mechanism(
        headline=(
            f"{called(reader)} has waited {index.lasting(for_s)}{at_line(main_thread(reader))} for "
            f"the end of the output of {command}, which has ended: {names} still {have} it open"
        ),
        evidence=(
            *([f"{called(child)} ended: {ended.words}"] if child is not None and ended else ()),
            f"{called(reader)} waits for the end of {pipes}, and no other process can write there",
            *(
                f"{called(each)} is{at_line(main_thread(each)) or ' still there'}"
                for each in kept.keepers[:SHOWN_WAITERS]
            ),
        ),
        cause=(
            f"communicate() and read() wait for the end of the output, not for the exit of the "
            f"command: until every process that has inherited it has closed it. {names}, which "
            f"{started} has started, {'lives' if have == 'has' else 'live'} on"
            + (
                f": the signal that has ended {called(child)} ends only the process itself, and "
                "none that it has started."
                if child is not None and is_killed
                else "."
            )
        ),
        advice=(
            "Start the command in a session of its own (start_new_session=True) and end the whole "
            "group with os.killpg(proc.pid, signal.SIGKILL), not the command alone. Give "
            "communicate() a timeout, so that the read ends too; a longer limit for the exit of "
            "the command does not help. What is to stay in the background needs an output of its "
            "own (> file 2>&1 &)."
        ),
    )
