"""Which descriptors a process does not close, and which statement opens them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from mpwatch.describe.frames import own_frames
from mpwatch.diagnose.analysis.growth.growing import Explanation, Growing
from mpwatch.diagnose.analysis.growth.holders import kept_in, kept_to_end
from mpwatch.diagnose.analysis.growth.never_closed import left_descriptors
from mpwatch.diagnose.analysis.growth.newest import (
    MOST,
    NewestAccepted,
    are_logs,
    descriptor_words,
    kind_of,
    newest_accepted,
    newest_kind,
    newest_links,
    newest_pairs,
    own_lines,
)
from mpwatch.diagnose.analysis.growth.registrations import handlers_each_round
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import all_called
from mpwatch.diagnose.analysis.source.lines import mark_place, mark_words, marks
from mpwatch.diagnose.analysis.throughput.shares import shares
from mpwatch.model.samples import FdKind, FdLink
from mpwatch.model.snapshot import Process
from mpwatch.model.source_code import Mark

_ABOUT = re.compile(
    r"(?P<kind>\w+) (?P<pattern>[^;]+); (?:(?P<calls>each call of .+)|(?P<loop>.+))"
)
_KINDS: Mapping[str, Sequence[FdKind]] = {
    "any": ("file", "pipe", "socket", "shm", "device", "event"),
    "event": ("event",),
    "file": ("file", "shm", "device"),
    "pipe": ("pipe",),
    "shm": ("shm", "file"),
}


class Unclosed(Struct, frozen=True):
    """A statement that opens what is not closed."""

    mark: Mark
    where: str
    """`each call of save()`, or `each round of the loop at main.py:51-57 work`."""
    pattern: str
    """`ocr_*.npy`."""
    matching: int
    """So many of the newest descriptors have such a name; 0 where the source writes none out."""


def unclosed_by(index: Index, process: Process, gained: float) -> Unclosed | None:
    """The one statement that opens what the newest descriptors of a process are.

    Their names tell it, as far as the source writes them out. Otherwise the process has to be in
    the file of the statement, which a loop of the program has to repeat.
    """
    links = newest_links(process, gained)
    kind = kind_of(links)
    found = [
        each
        for mark in marks(index, "unclosed")
        if (each := _matching(index, process, links, mark, kind)) is not None
    ]
    named = [each for each in found if each.matching]
    statements = {(each.mark.file, each.mark.statement) for each in named or found}
    return (named or found)[0] if len(statements) == 1 else None


def _matching(
    index: Index, process: Process, links: Sequence[FdLink], mark: Mark, kind: FdKind | None
) -> Unclosed | None:
    about = _ABOUT.fullmatch(mark.about)
    if about is None or kind is None or kind not in _KINDS.get(about["kind"], ()):
        return None
    pattern = about["pattern"]
    where = about["calls"] or f"each round of the loop at {about['loop']}"
    if not pattern.strip("*"):
        is_here = about["loop"] is not None and mark.file in _files(index, process)
        return Unclosed(mark, where, pattern, 0) if is_here else None
    names = re.compile(".*".join(map(re.escape, pattern.split("*"))))
    paths = [each.target.removesuffix(" (deleted)") for each in links]
    matching = sum(names.fullmatch(each.rpartition("/")[2]) is not None for each in paths)
    return Unclosed(mark, where, pattern, matching) if matching >= MOST * len(links) else None


def _files(index: Index, process: Process) -> set[str]:
    """The files of the program that a process was seen in: its stacks, and lines of its account."""
    found = {frame.file for each in process.threads for frame in own_frames(each.stack)}
    names = {
        name for each in shares(index, process) if (name := each.activity.place.partition(":")[0])
    }
    return found | {m.file for m in index.snapshot.marks if m.file.rpartition("/")[2] in names}


def explain_descriptors(index: Index, found: Growing) -> Explanation:
    """Of which kind the newest descriptors of a process are, and what opens or keeps them."""
    process, gained = found.process, found.growth.gained
    kind = newest_kind(process, gained)
    noun, cause, advice = _DESCRIPTORS.get(kind, _DESCRIPTORS[None])
    if kind == "file" and _maps_as_much(found):
        noun, cause, advice = _MAPPED_FILES
    elif kind == "file" and are_logs(process, gained):
        noun, cause, advice = _LOG_FILES
    if kind == "socket":
        loops, pairs = newest_pairs(process, gained)
        noun, cause, advice = _LOOPS if loops else _PAIRS if pairs else (noun, cause, advice)
        if (accepted := newest_accepted(process, gained)) is not None:
            return _of_server(descriptor_words(index, process, gained), process, accepted)
    words = descriptor_words(index, process, gained)
    if (left := unclosed_by(index, process, gained)) is not None:
        return _of_unclosed(found, left, noun, words)
    if (added := handlers_each_round(index, found, kind, noun, words)) is not None:
        return added
    if (of_object := left_descriptors(index, found, kind, noun, words)) is not None:
        return of_object
    at_end = kept_to_end(index, process) if kind in ("torch", "shm") else None
    if at_end is not None:
        return Explanation(noun, (*words, at_end.evidence), at_end.cause, at_end.advice)
    if kind not in ("event", "epoll", "gpu") and noun != _LOG_FILES[0]:
        kept = kept_in(index, process, None if kind == "torch" else "opens")
        if kept is not None:
            return Explanation(noun, words, f"{cause} {kept.cause}", f"{advice} {kept.advice}")
    return Explanation(noun, words, cause, advice)


def _of_unclosed(found: Growing, left: Unclosed, noun: str, words: tuple[str, ...]) -> Explanation:
    """Descriptors that are plain numbers, which one statement opens and nothing closes."""
    mark, place = left.mark, mark_place(left.mark)
    is_temporary = "mkstemp" in mark.statement.text
    matched = (f"{left.matching} of them match the name that it gives: {left.pattern}",)
    names, verb = all_called(found.processes), "have" if len(found.processes) > 1 else "has"
    likely = "" if left.matching else "Most likely "
    return Explanation(
        noun,
        (*words, *(matched if left.matching else ())),
        f"{likely}{mark_words(mark)} opens one in {left.where}, and {mark.function}() neither "
        "closes it nor passes it on. "
        + (
            "mkstemp() returns an open descriptor as well as the path. Opening the path again and "
            "closing that file, or removing it, does not close this descriptor, and a removed file "
            "keeps its disk space until it is closed."
            if is_temporary
            else "It is a plain integer: unlike a file object or a socket, it is not closed when "
            "nothing refers to it any more."
        ),
        (
            f"Close or use the descriptor that is returned at {place}: call os.close(fd), or write "
            "through `with os.fdopen(fd, 'wb') as out:` in place of a second open(); or use "
            "tempfile.NamedTemporaryFile in a with-statement."
            if is_temporary
            else f"Call os.close() in a `finally` clause on what is opened at {place}, or open it "
            "in a with-statement (open(), os.fdopen())."
        )
        + " A higher limit (ulimit -n) or new workers only delay the failure; gc.collect() closes "
        "none of them.",
        f"{names} {verb} ever more {noun}, opened at {place} and never closed",
    )


def _of_server(words: tuple[str, ...], process: Process, accepted: NewestAccepted) -> Explanation:
    """A server that accepts connections and keeps them."""
    lines = own_lines(process)
    ended = (
        (f"the clients of {accepted.ended} of them have closed their end",)
        if accepted.ended
        else ()
    )
    return Explanation(
        "open sockets",
        (
            *words,
            f"{accepted.connections} of them are connections accepted at {accepted.port}",
            *ended,
            *((f"its main thread when last seen: {lines}",) if lines else ()),
        ),
        "It accepts connections and does not close them. "
        + (
            "Each stays open after its client has closed it: an end of file (recv() gives b'') or "
            "an end of its registration with a selector closes nothing."
            if accepted.ended
            else "Its clients keep their ends open as well."
        ),
        "Call close() on the connection where recv() returns b'' or the request is answered, and "
        "drop it from every list or dict that keeps it. Let clients use one connection for many "
        "requests.",
    )


def _maps_as_much(found: Growing) -> bool:
    """Whether mappings rise about as fast as descriptors."""
    return any(
        other == "mappings" and rise.per_s >= found.growth.per_s / 2
        for other, rise in found.carried
    )


_MAPPED_FILES = (
    "open files",
    "It maps files (mmap, numpy.load with mmap_mode, memory-mapped data sets) and keeps the "
    "mappings: each keeps its file open until the mapping is closed, even if the file object was.",
    "Map each file once for each worker and keep that; or close each mapping (mmap.close(), with "
    "mmap.mmap(...) as mapped:) after its use.",
)
_LOG_FILES = (
    "open log files",
    "It opens log files and does not close them. A handler of logging (FileHandler) has its file "
    "open until it is closed: one that is added to the same logger for each task stays, and writes "
    "every later line into all earlier files, too.",
    "Where the handler is added, remove and close it at the end of the task "
    "(logger.removeHandler(handler), handler.close()), or set up logging once in each process. "
    "Close what writes events the same way (SummaryWriter.close()).",
)
_PAIRS = (
    "open sockets",
    "It makes connected pairs (multiprocessing.Pipe, socket.socketpair) and does not close them.",
    "Close both ends where their use ends: Connection.close(), or with connection:. Make one pipe "
    "for each worker and use it for all requests.",
)
_LOOPS = (
    "open sockets and epoll instances",
    "It makes event loops (asyncio.new_event_loop) and does not close them: each has an epoll "
    "instance and a pair of sockets.",
    "Use one event loop for the whole run, or asyncio.run() for each call, which closes its loop.",
)
_DESCRIPTORS: Mapping[FdKind | None, tuple[str, str, str]] = {
    None: (
        "open descriptors",
        "It opens descriptors and does not close them.",
        "Close what is opened where its use ends: with-statements do.",
    ),
    "pipe": (
        "open pipe ends",
        "It makes pipes (os.pipe, multiprocessing.Pipe or Queue, subprocess with PIPE) and does "
        "not close them.",
        "Close both ends where their use ends. Queue.close(), Connection.close() and Popen used "
        "in a with-statement do so. Make queues once and not for each step.",
    ),
    "socket": (
        "open sockets",
        "It opens connections and does not close them.",
        "Use one session or client for the whole run, and close each response: in with-statements.",
    ),
    "file": (
        "open files",
        "It opens files and does not close them.",
        "Open each file in a with-statement, or once for each worker and keep it.",
    ),
    "torch": (
        "open shared tensors",
        "Each shared tensor costs a descriptor for as long as it lives, in its sender until it is "
        "received, and in its receiver. The process keeps them.",
        "Keep .clone(), .item() or .numpy().copy() of what is received, and bound the queue "
        "through which tensors are sent.",
    ),
    "shm": (
        "open shared-memory files",
        "It opens shared memory (memfd, multiprocessing.shared_memory) and does not close it.",
        "Call close() where its use ends, and unlink() once for each block.",
    ),
    "event": (
        "open eventfds",
        "It makes eventfds and does not close them: event loops and CUDA libraries use them.",
        "Make one event loop for the whole run and close it at the end.",
    ),
    "epoll": (
        "open epoll instances",
        "It makes event loops or selectors and does not close them.",
        "Make one event loop for the whole run, or close each (loop.close(), selector.close()).",
    ),
    "gpu": (
        "open GPU device files",
        "It opens GPU devices again and again and does not close them.",
        "Initialise the library that opens them once for each process.",
    ),
}
