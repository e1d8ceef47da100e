"""Cycles of processes that all send to each other, or all receive from each other.

They do so through pipes, sockets, and queues; what one of them has sent may still be in a buffer.
"""

from __future__ import annotations

import re
from collections.abc import Set

from msgspec.structs import replace

from mpwatch.describe.frames import frame_words, is_library, own_frames
from mpwatch.diagnose.analysis.mechanisms.cases import (
    Case,
    Mechanism,
    Waiter,
    at_line,
    awaited,
    blocked_output_of,
    gets_from_queue,
    names_of,
)
from mpwatch.diagnose.analysis.mechanisms.joins import joined_by_their_parent, joins_a_reader
from mpwatch.diagnose.analysis.mechanisms.lost_limits import below_zero
from mpwatch.diagnose.analysis.mechanisms.taken_items import part_batch
from mpwatch.diagnose.analysis.pipes import READ_BOTH, channels_among, unread_pipe
from mpwatch.diagnose.analysis.process_queries import called
from mpwatch.diagnose.analysis.source.lines import mark_words, marks, source_of
from mpwatch.diagnose.analysis.stack_patterns import calls, user_frame
from mpwatch.diagnose.analysis.waits.providers import QUEUE_LOCK
from mpwatch.model.samples import READS
from mpwatch.model.source_code import Mark


def all_write(case: Case) -> Mechanism | None:
    """Every thread of a cycle is blocked in a send, so that none will read."""
    writes = ("pipe-write", "socket-write")
    if len(case.waiters) < 2 or not all(each.edge.kind in writes for each in case.waiters):
        return None
    full = next(((each, out) for each in case.waiters if (out := blocked_output_of(each))), None)
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
        headline=f"{names_of(case)} are all blocked in a send, and none of them receives.",
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


def unread_output(case: Case) -> Mechanism | None:
    """A full pipe that its reader, alive, does not read."""
    unread = unread_pipe(case.index.snapshot, case.waits, case.chain)
    if unread is None:
        return None
    return Mechanism(unread.cause, READ_BOTH, (unread.evidence,))


def blocked_output(case: Case) -> Mechanism | None:
    """A process is blocked writing to its output, and its reader waits for its answer."""
    found = next(((each, out) for each in case.waiters if (out := blocked_output_of(each))), None)
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


def all_read(case: Case) -> Mechanism | None:
    """Every process of a cycle waits to receive, so that none sends."""
    if len(case.waiters) < 2 or not all(
        each.edge.kind in READS or each.edge.what.startswith(QUEUE_LOCK) for each in case.waiters
    ):
        return None
    partial = part_batch(case)
    if partial is not None:
        return partial
    by_queue = all(gets_from_queue(each) for each in case.waiters)
    joined = joined_by_their_parent(case) if by_queue else None
    if joined is not None:
        parent = joined[0]
        line = f"{called(parent.process)} is{at_line(parent.thread)}"
        return replace(joins_a_reader(case, *joined), evidence=(line,))
    buffered = (
        _unflushed_input(case)
        or _unseen_question(case)
        or _buffered_input(case)
        or _buffered_output(case)
    )
    known = buffered or below_zero(case)
    if known is not None:
        return known
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
            else f"{_ADVICE_INPUT}{_ADVICE_NO_INPUT if _reads_natively(case) else ''}"
        ),
        headline=f"{names_of(case)} all wait to receive, and none of them sends.",
    )


_ADVICE_NO_INPUT = (
    " If it is not meant to read any (it asks a question, or takes commands by keys), start it "
    "with stdin=subprocess.DEVNULL, or the option that answers its question (-y)."
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


def _reads_natively(case: Case) -> bool:
    """Whether a program that is not Python reads its standard input: its lines do not show why."""
    return any(
        each.thread is not None
        and each.thread.waits_on is not None
        and each.thread.waits_on.fds == (0,)
        and not each.process.sample.is_python
        for each in case.waiters
    )


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
            headline=f"{names_of(case)} all wait to receive, and none of them sends.",
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
            headline=f"{names_of(case)} all wait to receive, and none of them sends.",
        )
    return None


def _unseen_question(case: Case) -> Mechanism | None:
    """A subprocess asks a question through a pipe, and waits for the answer on its standard input.

    What has started it waits for a whole line, or for more.
    """
    for each, after in zip(case.waiters, (*case.waiters[1:], case.waiters[0]), strict=True):
        wait = each.thread.waits_on if each.thread is not None else None
        theirs = after.thread.waits_on if after.thread is not None else None
        frame = user_frame(each.thread.stack) if each.thread is not None else None
        if wait is None or theirs is None or frame is None or wait.fds != (0,):
            continue
        asks = [
            mark
            for mark in marks(case.index, "prompts")
            if (mark.file, mark.function) == (frame.file, frame.function.rpartition(".")[2])
            and mark.statement.line == frame.line
        ]
        pipes = channels_among(theirs.targets)
        streams = {
            link.fd
            for link in each.process.sample.links
            if link.kind == "pipe" and link.channel in pipes and link.fd in (1, 2)
        }
        if asks and streams:
            return _asks(each, after, asks[0], streams)
    return None


def _asks(child: Waiter, parent: Waiter, mark: Mark, streams: Set[int]) -> Mechanism:
    """A question that nobody sees, in words.

    Args:
        child: The process that asks.
        parent: The one that waits for its output.
        mark: The statement that waits for the answer.
        streams: The descriptors of the child, of 1 and 2, whose output the other one waits for.
    """
    name, other = called(child.process), called(parent.process)
    written, _, line = mark.about.rpartition(" in line ")
    is_error = "stderr" in written
    output = "standard error" if is_error else "standard output"
    file = mark.file.rpartition("/")[2]
    how = (
        f"`{written}` ({file}:{line}) writes no whole line to its {output}, and then "
        f"{mark_words(mark)}"
        if written
        else f"{mark_words(mark)} writes no whole line to its {output} and"
    )
    waits = f"which waits{at_line(parent.thread)} for more output of {name}"
    if (2 if is_error else 1) in streams:
        sees = (
            f"Both are pipes of {other}, {waits}: one that takes whole lines does not get the "
            "question, and none answers it."
        )
    else:
        sees = (
            f"The input is a pipe of {other}, {waits} and sends nothing meanwhile. The question "
            "goes elsewhere, and nothing that is typed there is read."
        )
    return Mechanism(
        cause=(
            f"{name} asks a question and waits for the answer: {how} waits for a line of its "
            f"standard input. {sees} The input stays open, so no end of file comes either."
        ),
        advice=(
            f"Start {name} so that it does not ask: with the option that answers beforehand (-y, "
            "--yes, --force or the like), or with stdin=subprocess.DEVNULL, so that it reads an "
            "end of file and fails with a message. First see why it asks: the question may be "
            "right, as where two inputs lead to one output file, which -y would overwrite. If it "
            "is to be answered, read what has come without waiting for the end of a line "
            "(os.read()) and write the answer with a newline. More workers, a restart, a larger "
            "queue or a timeout of the wait for results does not help."
        ),
        headline=(
            f"{name} asks a question{at_line(child.thread)} and waits for the answer on its "
            f"standard input, and {other}, which has the other end, waits for output of it."
        ),
    )


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
            headline=f"{names_of(case)} all wait to receive, and none of them sends.",
        )
    return None


def _reads_a_stream(waiter: Waiter) -> bool:
    """Whether code of the program itself reads a socket, and no Connection or Queue does."""
    frames = own_frames(waiter.thread.stack)[:1] if waiter.thread is not None else ()
    is_own = bool(frames) and (not is_library(frames[0]) or calls(frames, "/socket.py:readinto"))
    return waiter.edge.kind == "socket-read" and is_own
