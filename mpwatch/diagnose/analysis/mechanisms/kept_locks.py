"""Locks that a process keeps while it waits or sleeps, and lock files that it has left behind.

The function that takes a lock releases it: a holder that is no longer in that function has left it
by an exception or a return that skips the release. Of a lock file whose maker has ended nothing is
left but the processes that wait for its removal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from mpwatch.describe.frames import frame_words, is_library, own_frames, program_frames
from mpwatch.describe.processes import wait_verb
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.mechanisms.cases import Case, Mechanism, Waiter, at_line, ended_words
from mpwatch.diagnose.analysis.process_queries import (
    SERVICE_ROLES,
    all_called,
    called,
    family_head,
    label_stem,
)
from mpwatch.diagnose.analysis.source.lines import source_of
from mpwatch.diagnose.analysis.source.loops import condition_of
from mpwatch.diagnose.analysis.stack_patterns import calls, main_thread, user_frame
from mpwatch.diagnose.analysis.waits.blockages import stalled_s
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.diagnose.analysis.waits.file_locks import (
    LOCK_FILE,
    LOCK_ON,
    TAKES,
    has_open,
    is_database,
)
from mpwatch.diagnose.analysis.waits.providers import LEFT_S
from mpwatch.diagnose.analysis.waits.verdicts import OWN_FILE_LOCK, where
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process, Thread
from mpwatch.model.source_code import Skip, Statement

POLLS_SHARE = 0.1
"""A loop that sleeps and checks whether a file is there uses a smaller share of the time."""
NAMED = 3
_BATON = "torch/utils/file_baton.py:wait"
_LOCK_NAME = re.compile(r"(^|[._-])lock$|\.lck$")
_HELPS = re.compile(rf"{TAKES.pattern}|begin|enter|transaction|connect|execute")
"""In the name of a function that may leave a lock taken by design."""


class KeptFile(Struct, frozen=True):
    """A lock file that a process has open: it made the file, and others wait for its removal."""

    process: Process
    path: str


def kept_lock_file(poller: Process, waiters: Sequence[Process]) -> KeptFile | None:
    """A file with the name of a lock that a process has open which waits for one that polls.

    No lock of the kernel is on it: that it exists is the lock.
    """
    for waiter in waiters:
        path = lock_file_of(waiter)
        if path is not None and not has_open(poller, path):
            return KeptFile(waiter, path)
    return None


def left_function(holder: Process, waiters: Sequence[Process]) -> Frame | None:
    """The line at which processes wait for a lock, if its holder is not in that function now.

    Returns:
        `None` where they wait in different functions, where the holder is in that one as well, or
        where a stack is not known: then the holder may be in the part that the lock is for.
    """
    places = [
        _takes_it_at(own_frames(main.stack)) for each in waiters if (main := main_thread(each))
    ]
    main = main_thread(holder)
    inside = own_frames(main.stack) if main is not None else ()
    first = places[0] if places else None
    if first is None or user_frame(inside) is None:
        return None
    function = (first.file, first.function)
    if any(each is None or (each.file, each.function) != function for each in places):
        return None
    return None if function in ((each.file, each.function) for each in inside) else first


def _takes_it_at(frames: Sequence[Frame]) -> Frame | None:
    """The innermost line of the program that is no helper which returns with the lock.

    Helpers are known by their name, or as what a context manager runs on entry.
    """
    for place, frame in enumerate(frames):
        if is_library(frame) or _HELPS.search(frame.function.lower()):
            continue
        if not calls(frames[place + 1 : place + 2], "contextlib.py:__enter__"):
            return frame
    return None


def cause_of_kept_file(poller: Process, now: str, kept: KeptFile) -> str:
    """That a process has left a lock file behind and waits for one that waits for its removal."""
    end, keeper = called(poller), called(kept.process)
    return (
        f"{keeper} has the lock file {kept.path} open, so it has made the file. It has gone on "
        f"without removing it and waits{at_line(main_thread(kept.process))}, while {end} "
        f"{now}. If that loop waits until the file is gone, each waits for the "
        "other. A lock file stays where the lines that remove it are skipped: by an exception in "
        "the work that it guards, also one that a caller catches and only logs."
    )


def advice_of_kept_file(thread: Thread | None, kept: KeptFile) -> str:
    """Where a lock file has to be removed."""
    frames = own_frames(thread.stack) if thread is not None else ()
    mine = [frame for frame in frames if not is_library(frame)]
    caller = f", in {mine[1].function}() ({frame_words(mine[1])})" if len(mine) > 1 else ""
    limit = (
        f" Give the loop at {frame_words(mine[0])} a limit after which it raises." if mine else ""
    )
    return (
        f"Remove {kept.path.rpartition('/')[2]} in a finally block around the work that it "
        f"guards{caller}, and let an error of that work end the process. Or use fcntl.flock() (or "
        f"the package filelock), whose lock ends with the process that has it.{limit}"
    )


def cause_of_left_lock(
    holder: Process, now: str, path: str, taken: Frame, *, is_database: bool
) -> str:
    """That a process has a lock and is no longer where the others take it."""
    end = called(holder)
    if is_database:
        return (
            f"{end} has begun a transaction that writes to {path} and has not ended it. It {now}, "
            f"outside of {taken.function}(), in which the others wait to begin theirs. So most "
            "likely the transaction was left open: an exception or a return between BEGIN and "
            "COMMIT skips the COMMIT, and where a caller catches the exception, nothing shows it."
        )
    return (
        f"{end} has the lock on {path}, and {now}, outside of {taken.function}(), in which the "
        "others wait to take it. It has most likely left that function without releasing the lock: "
        "an exception or a return skips the line that would."
    )


def advice_of_left_lock(holder: Process, taken: Frame, *, is_database: bool) -> str:
    """Where a lock has to be released that was left behind."""
    end, place = called(holder), where(holder).removeprefix(", ")
    if is_database:
        return (
            f"End the transaction on every way out of {taken.function}() ({frame_words(taken)}): "
            "with connection: around its lines commits at their end and rolls back on an "
            "exception; or call rollback() in an except or finally block before anything is "
            f"raised. If {end} is meant to have a transaction open at {place}, commit before that "
            "line."
        )
    return (
        f"Release the lock on every way out of {taken.function}() ({frame_words(taken)}), in a "
        f"with or finally block. If {end} is meant to have it at {place}, do that part outside of "
        "the lock."
    )


def kept_file_lock(case: Case) -> Mechanism | None:
    """A cycle in which one process waits for a lock on a file that the next one holds."""
    waiters = case.waiters
    for each, after in zip(waiters, (*waiters[1:], *waiters[:1]), strict=True):
        is_held = each.edge.what.startswith(LOCK_ON) and len(waiters) > 1
        if is_held and after.process.process in each.edge.providers:
            return _kept(case, each, after)
    return None


def _kept(case: Case, needs: Waiter, holder: Waiter) -> Mechanism:
    """Why the holder does not release the lock, and where it most likely took it."""
    path = needs.edge.what.removeprefix(LOCK_ON)
    keeper, other = called(holder.process), called(needs.process)
    at, needed_at = at_line(holder.thread), at_line(needs.thread)
    same = _same_code(case, needs, holder)
    begun = at_line(same[1]) if same is not None else ""
    is_data = is_database(case.index, path)
    cause = (
        f"{keeper} holds the lock on {path} while it waits{at}. {other} needs that lock{needed_at} "
        "before it can do what would end that wait, so neither continues."
    )
    if is_data:
        cause += (
            " A statement that writes begins a transaction of SQLite, and Python's sqlite3 keeps "
            "it, with the lock, until commit() or rollback() is called."
        )
    if same is not None and begun:
        cause += (
            f" {called(same[0])}, which runs the same code as {keeper}, waits for this lock"
            f"{begun}: likely {keeper} took it there."
        )
    took = begun or f" where {keeper} last {'wrote to the database' if is_data else 'took it'}"
    release = (
        f"Commit right after the statement{took} (commit(), or with connection:), "
        if is_data
        else f"Release the lock that is taken{took} (in a with or finally block), "
    )
    return Mechanism(
        cause=cause,
        advice=(
            f"{release}before {keeper} waits{at}. Nothing that another process has to answer "
            "belongs between taking a lock and releasing it."
        ),
        headline=(
            f"{keeper} holds the lock on {path} while it waits{at}, and {other} waits for that lock"
            f"{needed_at}."
        ),
    )


def _same_code(case: Case, needs: Waiter, holder: Waiter) -> tuple[Process, Thread] | None:
    """Another process that runs the same as the holder, and waits for the same lock."""
    head = family_head(case.index, holder.process)
    by_id = {each.process: each for each in case.index.snapshot.living()}
    for edge in case.waits.edges:
        process = by_id.get(edge.waiter)
        if process is None or edge.what != needs.edge.what or process == holder.process:
            continue
        is_alike = label_stem(process) == label_stem(holder.process)
        if is_alike and family_head(case.index, process) == head:
            thread = next((each for each in process.threads if each.tid == edge.tid), None)
            return None if thread is None else (process, thread)
    return None


@derived
def waiting_for_left_lock(index: Index) -> tuple[Process, ...]:
    """The processes that wait for a lock file that no living process of the job can have made.

    Every other process of the job waits for one of them, and none has made progress for `LEFT_S`.
    """
    living = [each for each in index.snapshot.living() if each.role not in SERVICE_ROLES]
    edges = {edge.waiter: edge for edge in wait_graph(index).edges if edge.tid == edge.waiter.pid}
    waiting = [
        each
        for each in living
        if (each.process in edges and edges[each.process].what == LOCK_FILE)
        or _polls_for_removal_s(index, each.process) >= LEFT_S
    ]
    if not waiting:
        return ()
    held_up = {each.process for each in waiting}
    others = [each for each in living if each.process not in held_up]
    while True:
        more = [each for each in others if _waits_for(index, each, held_up)]
        if not more:
            break
        held_up |= {each.process for each in more}
        others = [each for each in others if each not in more]
    if others or any(left_for_s(index, each) < LEFT_S for each in waiting):
        return ()
    if any(lock_file_of(each) for each in living if each not in waiting):
        return ()  # that one has made it, and waits for something else
    return tuple(waiting)


@derived
def _polls_for_removal_s(index: Index, identity: ProcessId) -> float:
    """Seconds of the last minute in which a process was only in a loop that ends without a file.

    On a loaded machine a reading often finds it awake, waiting for a core: what counts is that it
    was in no other function, and used little cpu time.
    """
    process = index.snapshot.get(identity)
    condition = condition_of(index, process) if process is not None else None
    account = index.snapshot.account.processes.get(identity)
    if condition is None or condition.kind != "file-removed":
        return 0.0
    functions: set[str] = set()
    seconds = 0.0
    has_slept = False
    for bucket in reversed(account.main.buckets if account and account.uncounted else ()):
        seen = bucket.tally.seen
        functions |= {each.place.partition(" ")[2] for each in seen if each.place}
        is_busy = bucket.tally.cpu_s > POLLS_SHARE * bucket.tally.observed_s
        is_waiting = any(each.kind in ("waiting", "idle", "stopped") for each in seen)
        if len(functions) > 1 or is_busy or is_waiting:
            break
        has_slept |= any(each.kind == "sleeping" for each in seen)
        seconds += bucket.tally.observed_s
    return seconds if has_slept else 0.0


def left_for_s(index: Index, process: Process) -> float:
    """Seconds for which a process has waited for a lock file, as far as it was watched."""
    return max(_polls_for_removal_s(index, process.process), stalled_s(process, index) or 0.0)


def lock_file_of(process: Process) -> str | None:
    """The path of a file with the name of a lock that a process has open, and no lock on."""
    fds = process.sample.fds
    locked = {lock.path for lock in fds.locks} if fds is not None else set()
    for link in process.sample.links:
        is_lock = _LOCK_NAME.search(link.target.rpartition("/")[2].lower()) is not None
        if link.kind == "file" and is_lock and link.target not in locked:
            return link.target
    return None


class LeftAt(Struct, frozen=True):
    """Code that the processes which wait run through, and that may leave a lock file behind."""

    file: str
    skip: Skip

    @property
    def words(self) -> str:
        """The lines at which the file is made and removed, and what stands between."""
        taken, work, back = self.skip.taken, self.skip.leaves, self.skip.back
        return (
            f"`{work.text}` ({self.file}:{work.line}) is between `{taken.text}` (line "
            f"{taken.line}) and `{back.text}` (line {back.line}), which is in no finally block"
        )


def _left_at(index: Index, waiting: Sequence[Process]) -> LeftAt | None:
    """Where those that wait make and remove such a file themselves, if an exception skips that."""
    for process in waiting:
        thread = main_thread(process)
        frames = own_frames(thread.stack) if thread is not None else ()
        for place, frame in enumerate([each for each in frames if not is_library(each)]):
            line = source_of(index, frame)
            for skip in line.skips if line is not None else ():
                maker = skip.back.text.rpartition(".")[0]
                is_here = line is not None and f"{maker}." in line.statement.text
                if skip.by_error and (place == 0 or is_here):
                    return LeftAt(frame.file.rpartition("/")[2], skip)
    return None


def _waits_for(index: Index, process: Process, held_up: set[ProcessId]) -> bool:
    """Whether the main thread of a process waits for some of these processes and for no other."""
    providers = {
        provider
        for edge in wait_graph(index).edges
        if edge.waiter == process.process and edge.tid == process.pid
        for provider in edge.providers
    } - {process.process}
    return bool(providers) and not providers.isdisjoint(held_up)


def killed_before(index: Index) -> tuple[Process, ...]:
    """The processes of the job that a signal has ended, which cannot have removed their files."""
    return tuple(
        each
        for each in index.snapshot.processes
        if each.ended is not None and each.ended.signal is not None
    )


def left_lock(index: Index) -> Mechanism | None:
    """Why the processes that wait for a lock file do not get it; `None` where some may have it."""
    waiting = waiting_for_left_lock(index)
    if not waiting:
        return None
    killed = killed_before(index)
    maker = next((each for each in waiting if lock_file_of(each)), None)
    left_at = _left_at(index, waiting) if maker is not None or not killed else None
    names, wait = all_called(waiting, NAMED), wait_verb(waiting)
    by = f"{all_called(killed, NAMED)} left when a signal ended it" if killed else ""
    if maker is not None:
        by = f"{called(maker)} has made and not removed"
    elif left_at is not None:
        by = (
            "most likely an exception has left behind, at "
            f"{left_at.file}:{left_at.skip.leaves.line}"
        )
    at_once = f"Remove the file{_where(waiting)} if no other job is at work under it, and start "
    if left_at is not None or maker is not None:
        advice = _advice_of_left_file(left_at, at_once)
    else:
        advice = (
            f"{at_once}the job again. Where the program kills a process that may have it, remove "
            "the file there too, before others look for it; or use a lock of flock() or "
            "filelock.FileLock, which the kernel releases when its holder ends."
        )
    return Mechanism(
        cause=(
            f"The lock is a file: {_maker(waiting)}, and removes it when it is done. Every process "
            "of this job waits for that, so none of them is at work under it. "
            f"{_why_left(killed, maker, left_at)}"
        ),
        advice=advice,
        evidence=ended_words(killed, NAMED),
        headline=(
            f"{names} {wait} for a lock file{_places(waiting)} that "
            f"{by or 'no living process of this job has made'}"
        ),
        is_certain=maker is not None,
    )


def _why_left(killed: Sequence[Process], maker: Process | None, left_at: LeftAt | None) -> str:
    """Which process has left a lock file behind, and why."""
    if maker is not None:
        words = (
            f"{called(maker)} has {lock_file_of(maker)} open, so it has made the file. It has gone "
            "on without removing it, and now waits for that itself."
        )
    elif left_at is not None:
        words = "One of them, or one that has ended, has gone on without removing it."
    elif killed:
        return (
            f"{all_called(killed, NAMED)} had it, most likely: a process that is killed does not "
            "reach the line that removes its file, not even one in a finally block."
        )
    else:
        return (
            "Either one that was killed before it could remove the file has left it (by kill() or "
            "terminate() after a time limit, or by the kernel for lack of memory; not even a "
            "finally block runs then), or another job has it now."
        )
    if left_at is None:
        return f"{words} An exception or a return skips the line that removes it."
    return (
        f"{words} They run through the code that makes it: {left_at.words}. An exception there "
        "leaves the file where it is, also one that a caller catches and only logs."
    )


def _advice_of_left_file(left_at: LeftAt | None, at_once: str) -> str:
    """Where a lock file has to be removed that one of those that wait has left."""
    where_to = "around the work that the lock is for"
    back = "the line that removes it"
    if left_at is not None:
        where_to = (
            f"around `{left_at.skip.leaves.text}` ({left_at.file}:{left_at.skip.leaves.line})"
        )
        back = f"`{left_at.skip.back.text}`"
    return (
        f"Put {back} into a finally block {where_to}, and look in the log for the exception there. "
        "Or use fcntl.flock() (or the package filelock), whose lock ends with the process that has "
        "it. Give the loop that waits a limit after which it raises: polling more often does not "
        f"help. {at_once}the job again."
    )


def _maker(waiting: Sequence[Process]) -> str:
    """Which process makes the file, in the words of what they wait in."""
    if _is_baton(waiting):
        return "the process that builds an extension (torch's FileBaton) makes it"
    return "the process that has the lock makes it"


def _where(waiting: Sequence[Process]) -> str:
    """Where such a file is, as far as the library that waits says."""
    if _is_baton(waiting):
        return (
            " (`lock` in the directory of the build: for torch.utils.cpp_extension, below "
            "TORCH_EXTENSIONS_DIR or ~/.cache/torch_extensions)"
        )
    return ""


def _is_baton(waiting: Sequence[Process]) -> bool:
    thread = main_thread(waiting[0])
    return thread is not None and calls(own_frames(thread.stack), _BATON)


def _places(waiting: Sequence[Process]) -> str:
    """The lines at which they wait: ` at ops.py:48 load`."""
    threads = [thread for each in waiting if (thread := main_thread(each)) is not None]
    found = [frame for thread in threads if (frame := user_frame(thread.stack)) is not None]
    lines = dict.fromkeys(map(frame_words, found))
    return f" at {' and '.join(list(lines)[:NAMED])}" if lines else ""


def own_file_lock(case: Case) -> Mechanism | None:
    """A process waits for a lock of flock(2) that it has itself, by another open file."""
    last = case.waiters[-1] if case.waiters else None
    if case.chain.conclusion != OWN_FILE_LOCK or last is None or last.thread is None:
        return None
    name, path = called(last.process), last.edge.what.removeprefix(LOCK_ON)
    nested = _taken_again(case.index, program_frames(last.thread.stack))
    if nested is None:
        return Mechanism(
            cause=(
                f"{name} has {path} open twice: it took the lock by one open file and waits for it "
                f"by another. {_OF_OPEN_FILE} So {name} waits for itself, and any other process "
                "that wants the lock waits behind it."
            ),
            advice=(
                "Look which function on its stack has taken the lock before (mpwatch dump "
                f"--stacks {last.process.pid}), and call from there only what expects it held; or "
                f"use one lock object for each process, which counts. {_NOT_STALE}"
            ),
            headline=f"it waits{at_line(last.thread)} for the lock on {path}, which it has itself.",
        )
    held, way = nested.held, nested.way
    file = way[-1].file.rpartition("/")[2]
    outer = f"`{held.text}` ({file}:{held.line} {way[-1].function})"
    calls_it = ", ".join(f"{each.function}()" for each in reversed(way[:-1]))
    return Mechanism(
        cause=(
            f"{name} is still inside of {outer}, which has taken the lock on {path}. At "
            f"{frame_words(way[-1])} it calls {calls_it}, which takes the same lock again at "
            f"{frame_words(way[0])} (`{nested.again.text}`), by a file that is opened anew. "
            f"{_OF_OPEN_FILE} So {name} waits for itself, and any other process that wants the "
            "lock waits behind it."
        ),
        advice=(
            f"Divide {way[0].function}() into a function that takes the lock and an inner one that "
            f"expects it held, and call the inner one from {way[-1].function}(); or use one lock "
            f"object for each process, which counts how often it is taken. {_NOT_STALE}"
        ),
        headline=(
            f"it waits at {frame_words(way[0])} for the lock on {path}, which it has taken itself "
            f"by {outer}, and is still in there."
        ),
    )


_OF_OPEN_FILE = (
    "A lock of flock() belongs to the open file, not to the process: two opens of one file are two "
    "owners, also within one process."
)
_NOT_STALE = (
    "It is no stale lock file: with the file deleted, two processes would write at once. A longer "
    "wait, a restart or fewer processes do not help, as one process alone stops there as well."
)


class _TakenAgain(Struct, frozen=True):
    """A statement that takes a lock which a function that has called it has taken before."""

    way: Sequence[Frame]
    """From the statement to the call in the block that has the lock, innermost first."""
    again: Statement
    held: Statement
    """What has taken it: the header of a `with` block, or a call of acquire()."""


def _taken_again(index: Index, frames: Sequence[Frame]) -> _TakenAgain | None:
    """Where a stack takes by the same call what an outer function of it has taken."""
    for number, inner in enumerate(frames):
        line = source_of(index, inner)
        again = _taking(line.statement) if line is not None else None
        if line is None or again is None:
            continue
        for place in range(number + 1, len(frames)):
            around = source_of(index, frames[place])
            if around is None:
                continue
            blocks = [each for each in around.within if each.text.startswith(_BLOCKS)]
            held = [each for each in (*around.held, *blocks) if _taking(each) == again]
            if held:
                return _TakenAgain(frames[number : place + 1], line.statement, held[-1])
    return None


_BLOCKS = ("with ", "async with ")


def _taking(statement: Statement) -> str | None:
    """What takes a lock in a statement: `locked` of `with locked(path):`; `None` if nothing does.

    Of a lock that is an object, that: `self.lock`, also of `self.lock.acquire()`.
    """
    text = statement.text.removeprefix("async ").removeprefix("with ").removesuffix(":")
    found = re.match(r"(?:[\w.]+ = )?([\w.]+)", text)
    name = found[1].removesuffix(".acquire").removesuffix(".__enter__") if found is not None else ""
    return name if TAKES.search(name.lower()) else None
