"""How processes have exited: normally, by a shutdown, a crash or a kill, alone or with another."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from signal import Signals
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from mpwatch.describe.frames import frame_words, is_library
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import (
    WORK_ROLES,
    called,
    children_started_by,
    counted,
    family_head,
)
from mpwatch.diagnose.analysis.source.lines import mark_place, mark_words, marks
from mpwatch.diagnose.analysis.stack_patterns import main_thread, user_frame
from mpwatch.diagnose.analysis.waits.chains import wait_graph
from mpwatch.diagnose.known_errors import place_of
from mpwatch.model.events import Raised, WrittenError
from mpwatch.model.findings import Finding
from mpwatch.model.history import Series
from mpwatch.model.samples import Ended
from mpwatch.model.snapshot import LogEntry, Process, Snapshot
from mpwatch.model.source_code import RAISE_OF
from mpwatch.model.units import bytes_text, seconds_text

Death: TypeAlias = Literal["normal", "shutdown", "crash", "killed", "failed", "unknown"]
"""`shutdown`: by a signal that asks politely. `failed`: an exit code other than 0."""

CRASH_SIGNALS = frozenset(
    (Signals.SIGSEGV, Signals.SIGABRT, Signals.SIGFPE, Signals.SIGILL, Signals.SIGBUS)
)
POLITE_SIGNALS = frozenset((Signals.SIGTERM, Signals.SIGINT, Signals.SIGHUP, Signals.SIGQUIT))
UNREAD_CPU_S = 2.5
"""CPU time that a process may use between its last reading and its end."""
TOGETHER_S = 3.0
"""Exits this close together are one event, though they may appear in two samples."""
PARENT_NOTICES_S = 12.0
"""A DataLoader checks its workers every 5 s, and takes some seconds more to fail."""
SENT_S = 5.0
"""A process ends so soon after the signal that ended it."""
EXCEPTIONS_SHOWN = 4
"""The last exceptions of a job, of each process and type one."""
WORDS_LIMIT = 200
"""Characters: an exception of a DataLoader repeats the whole traceback of its worker."""
SETTINGS = 3
"""Statements that set an action of a signal, which a finding names."""
NEAR_LIMIT = 0.9
"""Part of a control group's memory limit from which a SIGKILL is put down to the kernel."""


def death_of(ended: Ended) -> Death:
    """The kind of an exit."""
    if ended.signal is not None:
        if ended.signal in CRASH_SIGNALS:
            return "crash"
        return "shutdown" if ended.signal in POLITE_SIGNALS else "killed"
    if ended.exit_code is None:
        return "unknown"
    if ended.exit_code == 0:
        return "normal"
    # A shell and torchrun's own wrappers report a signal as 128 + its number; a handler of SIGTERM
    # often exits with the number that it was called with (pebble's workers do).
    if ended.exit_code - 128 in POLITE_SIGNALS or ended.exit_code == Signals.SIGTERM:
        return "shutdown"
    return "failed"


def ended_workers(snapshot: Snapshot) -> Iterator[tuple[Process, Ended]]:
    """Exited children that ran the user's code, with their exits."""
    for process in snapshot.processes:
        if process.ended is not None and process.role in WORK_ROLES:
            yield process, process.ended


def ended_python(snapshot: Snapshot) -> Iterator[tuple[Process, Ended]]:
    """Exited processes that ran Python code, the main process included."""
    for process in snapshot.processes:
        is_user_code = process.role in WORK_ROLES or process.role in ("main", "compile-worker")
        if process.ended is not None and (is_user_code or process.sample.is_python):
            yield process, process.ended


def died_with_parent(index: Index, process: Process, ended: Ended) -> bool:
    """Whether its parent's exit explains its own: it was earlier, or one kill hit both."""
    head = family_head(index, process)
    if head is None or head.ended is None or head.ended.at_s > ended.at_s + TOGETHER_S:
        return False
    if head.ended.at_s < ended.at_s - TOGETHER_S:
        return True
    parents, own = death_of(head.ended), death_of(ended)
    if own == "failed":
        # A parent that failed as well did so because of this child; one that was killed or
        # interrupted took it along.
        return parents in ("killed", "crash", "shutdown")
    if own == "killed" and parents == "shutdown":
        return True  # a scheduler asks the first process politely and ends the others
    if own == "killed" and parents == "failed" and _raised_itself(index, head, ended):
        return True  # the pool of a program that raises kills its workers (loky, pebble)
    return parents in (own, "unknown")


def _raised_itself(index: Index, parent: Process, ended: Ended) -> bool:
    """Whether an exception of its own ended the parent's program as its child was killed.

    A pool kills its workers while the exception leaves its with block, before the program ends by
    it, so that the order of the two says nothing. What its type says has to do.
    """
    return any(
        entry.process == parent.process
        and entry.at_s <= ended.at_s + TOGETHER_S
        and not reports_a_loss(entry)
        and entry.details.get("type") not in _MAY_REPORT_A_LOSS
        for entry in index.entries("exception")
    )


def could_not_receive(error: WrittenError) -> bool:
    """Whether a traceback is of a process that received a tensor whose sender had ended.

    The sharer of multiprocessing hands out descriptors for as long as the sender lives.
    """
    return error.raised.type in ("FileNotFoundError", "ConnectionRefusedError") and any(
        frame.file.endswith("multiprocessing/resource_sharer.py") for frame in error.raised.frames
    )


def raised_at(raised: Raised) -> str:
    """The innermost line of the program in a traceback, or the innermost of all: `a.py:7 load`."""
    own = next((frame for frame in raised.frames if not is_library(frame)), raised.frames[0])
    return frame_words(own).strip()


def reports_a_loss(entry: LogEntry) -> bool:
    """Whether an exception says that another process has ended, or was tagged as a known error."""
    return bool(entry.tags) or entry.details.get("type") in _LOSSES


_MAY_REPORT_A_LOSS = frozenset(("RuntimeError", "OSError", "TimeoutError", "Empty", "Exception"))
"""Exceptions that programs raise when they notice that a process is gone, among other reasons."""
_LOSSES = frozenset(
    (
        "BrokenProcessPool",
        "TerminatedWorkerError",
        "ProcessExpired",
        "ProcessExitedException",
        "ProcessRaisedException",
        "ChildFailedError",
        "CalledProcessError",
        "EOFError",
        "BrokenPipeError",
        "ConnectionResetError",
        "ConnectionRefusedError",
    )
)
"""Exceptions of the standard library, loky, pebble and torch that another process causes."""


def violent_deaths_near(index: Index, process: Process) -> tuple[Process, ...]:
    """Children and siblings that were killed or crashed: locks they held stay locked."""
    return _deaths_near(index, process, frozenset(("killed", "crash")))


def terminations_near(index: Index, process: Process) -> tuple[Process, ...]:
    """Children and siblings that were ended by SIGTERM: locks they held stay locked, too.

    Python does not handle SIGTERM: `Process.terminate` ends a process wherever it is. That is also
    how processes are stopped that hold nothing, so it says less than a kill.
    """
    found = _deaths_near(index, process, frozenset(("shutdown",)))
    return tuple(each for each in found if each.ended and each.ended.signal == Signals.SIGTERM)


def _deaths_near(index: Index, process: Process, kinds: frozenset[Death]) -> tuple[Process, ...]:
    """Children and siblings of a process with one of some kinds of exit."""
    head = family_head(index, process)
    heads = {process.process} if head is None else {process.process, head.process}
    return tuple(
        other
        for other in index.snapshot.processes
        if other.ended is not None
        and death_of(other.ended) in kinds
        and (parent := family_head(index, other)) is not None
        and parent.process in heads
    )


def sender_of(index: Index, process: Process, ended: Ended) -> str | None:
    """Which process has sent the signal that ended one, and at which line, as its hook reports.

    `main (12) at guard.py:25`; `None` where no hook has.
    """
    for entry in reversed(index.entries("kill")):
        sender = index.snapshot.get(entry.process)
        sent = entry.details.get("pid"), entry.details.get("signal")
        if sender is None or sent != (process.pid, ended.signal):
            continue
        if abs(entry.at_s - ended.at_s) <= SENT_S:
            site = entry.details.get("site")
            return f"{called(sender)} at {site}" if site else called(sender)
    return None


def last_seen(process: Process) -> tuple[str, ...]:
    """Where it was in the user's code when its stack was last taken, as evidence."""
    thread = main_thread(process)
    frame = user_frame(thread.stack) if thread is not None else None
    return () if frame is None else (f"last seen at {frame_words(frame)}",)


BESIDE_S = 1.0
"""Children of one parent that start within this time are made by one loop, as a rule."""


def started_beside(index: Index, process: Process) -> tuple[Process, ...]:
    """The children of its parent that were started just before or after it and run one function.

    In order of their start; empty where what it runs is known, or where they run several.
    """
    head = family_head(index, process)
    if head is None or process.role != "spawned" or process.label != process.role:
        return ()
    ticks = BESIDE_S * index.snapshot.ticks_per_s
    found = [
        each
        for each in children_started_by(index, head)
        if each.role == "spawned" and each.label != each.role
        if abs(each.process.start_ticks - process.process.start_ticks) <= ticks
    ]
    if len({_task_of(each) for each in found}) != 1:
        return ()
    return tuple(sorted(found, key=lambda each: (each.process.start_ticks, each.pid)))


def _task_of(process: Process) -> str:
    """Its label without its number: `studio.narrate` of `studio.narrate 1`."""
    return re.sub(r" \d+$", "", process.label)


def likely_task(index: Index, process: Process) -> tuple[str, ...]:
    """What a process most likely ran that had exited before its stack was taken, as evidence."""
    beside = started_beside(index, process)
    if not beside:
        return ()
    own = (process.process.start_ticks, process.pid)
    before = [each for each in beside if (each.process.start_ticks, each.pid) < own]
    order = f"after {called(before[-1])}" if before else f"before {called(beside[0])}"
    head = family_head(index, process)
    by = f"{called(head)} started it" if head is not None else "it was started"
    return (f"{by} right {order}: most likely it ran {_task_of(beside[0])} as well",)


def parent_waiting(index: Index, process: Process) -> tuple[str, ...]:
    """What its parent waits for since, if no living process can end that wait, as evidence."""
    head = family_head(index, process)
    if head is None or head.is_gone:
        return ()
    for chain in wait_graph(index).chains:
        if chain.links[-1].process == head.process and chain.verdict == "dead-end":
            # Its last link names the line as well.
            return (f"{called(head)} {chain.links[-1].words}: no living process can end that wait",)
    return ()


class ParentFate(Struct, frozen=True):
    """The state of a parent after the exit of its child."""

    failed_after_s: float | None = None
    """Seconds after the child's end at which it failed too; `None` if it did not."""
    words: tuple[str, ...] = ()


def parent_fate(index: Index, process: Process, ended: Ended) -> ParentFate:
    """Whether a parent failed soon after the exit of its child."""
    head = family_head(index, process)
    if head is None:
        return ParentFate()
    if head.ended is None:
        return ParentFate(words=(f"{called(head)} still runs",))
    after_s = head.ended.at_s - ended.at_s
    words = (
        f"{called(head)} ended {seconds_text(abs(after_s))} {_order(after_s)}: {head.ended.words}",
    )
    has_failed = death_of(head.ended) == "failed" and 0 <= after_s <= PARENT_NOTICES_S
    return ParentFate(after_s if has_failed else None, words)


def _order(after_s: float) -> str:
    """The word for before or after."""
    return "later" if after_s >= 0 else "earlier"


def cpu_limit_evidence(index: Index, process: Process) -> str:
    """That a process had used the cpu time that it may use; empty where it had not.

    The kernel sends SIGKILL at the hard limit (setrlimit(2), RLIMIT_CPU).
    """
    sample = process.sample
    if sample.cpu_limit_s is None or sample.cpu_ticks is None:
        return ""
    used_s = sample.cpu_ticks / index.snapshot.ticks_per_s
    if used_s < sample.cpu_limit_s - UNREAD_CPU_S:
        return ""
    return (
        f"it had used {seconds_text(used_s)} of cpu time when last read, of at most "
        f"{seconds_text(float(sample.cpu_limit_s))} (RLIMIT_CPU)"
    )


def memory_evidence(index: Index) -> tuple[str, ...]:
    """Evidence for the kernel's out-of-memory killer; empty if there is none."""
    found: list[str] = []
    kills = oom_kills(index)
    if kills:
        counted_kills = counted(kills, "out-of-memory kill")
        found.append(f"the control group counted {counted_kills} meanwhile")
    cgroup = index.snapshot.host.cgroup
    if cgroup is not None and cgroup.memory_limit_bytes:
        limit = cgroup.memory_limit_bytes
        # A job that moves into a group of its own has readings of an earlier one as well.
        past = index.history.of_host("cgroup_memory_bytes")
        readings = [point.value for point in past if point.value <= limit]
        most = max([cgroup.memory_bytes or 0, *readings])
        if most >= NEAR_LIMIT * limit:
            found.append(f"its control group reached {bytes_text(most)} of {bytes_text(limit)}")
    hits = _risen_by(index.history.of_host("cgroup_limit_hits"))
    # The page cache alone makes a busy job meet its limit: this supports, and proves nothing.
    if found and hits:
        found.append(f"the memory limit was met {counted(hits, 'time')} meanwhile")
    return tuple(found)


def oom_kills(index: Index) -> float | None:
    """Out-of-memory kills counted while the job was watched; `None` without a counter.

    Readings end with the job: what a kill found is reported with the exit itself.
    """
    series = index.history.of_host("cgroup_oom_kills")
    if not series:
        return None
    ends = [p.ended.oom_kills for p in index.snapshot.processes if p.ended is not None]
    last = max([series[-1].value, *(count for count in ends if count is not None)])
    return last - series[0].value


def _risen_by(series: Series) -> float:
    """How much a counter grew while it was watched."""
    return series[-1].value - series[0].value if series else 0.0


def failed_processes(snapshot: Snapshot) -> tuple[Process, ...]:
    """The root process of a job that has failed, then its other processes that have failed.

    Empty while the root process runs and after it has exited with 0: findings report children that
    fail in a running job.
    """
    root = snapshot.get(snapshot.root)
    if root is None or not _has_failed(root):
        return ()
    return (root, *(p for p in snapshot.processes if p is not root and _has_failed(p)))


def last_exceptions(snapshot: Snapshot) -> Iterator[tuple[LogEntry, str, str]]:
    """The last exceptions of a failed job: log entry, text, and the line that raised it."""
    if not failed_processes(snapshot):
        return
    latest: dict[tuple[object, object], LogEntry] = {}
    for entry in snapshot.log:
        if entry.kind in ("exception", "thread-died"):
            # One error is reported by each wrapper that it passes through.
            key = (entry.process, entry.details.get("type"))
            latest.pop(key, None)
            latest[key] = entry
    for entry in list(latest.values())[-EXCEPTIONS_SHOWN:]:
        is_long = len(entry.words) > WORDS_LIMIT
        words = f"{entry.words[: WORDS_LIMIT - 1]}…" if is_long else entry.words
        yield entry, words, place_of(entry.details) or ""


def _has_failed(process: Process) -> bool:
    """Whether it has ended, and not with exit code 0; an unknown exit status counts as failed."""
    return process.ended is not None and process.ended.exit_code != 0


def with_setting(index: Index, found: Finding, process: Process, ended: Ended) -> Finding:
    """The finding about an exit, with the line that set the timer or the limit that caused it."""
    if ended.signal in _TIMERS:
        return _with_timer(index, found)
    if ended.signal == Signals.SIGPIPE:
        return _with_default_sigpipe(index, found)
    limit = _LIMITS.get(ended.signal or 0)
    return found if limit is None else _with_limit(index, found, process, limit)


def _with_default_sigpipe(index: Index, found: Finding) -> Finding:
    """The finding about a process that SIGPIPE has ended, with the line that made that possible."""
    setting = marks(index, "default-sigpipe")[:SETTINGS]
    if not setting:
        return found
    words = " or ".join(mark_words(each) for each in setting)
    places = " or ".join(mark_place(each) for each in setting)
    return replace(
        found,
        evidence=(*found.evidence, *(f"that action is set by {mark_words(e)}" for e in setting)),
        cause=(
            f"{found.cause} Most likely that action was set by {words}, in each process that comes "
            "there."
        ),
        advice=(
            f"Leave SIGPIPE out at {places}, so that it stays ignored (SIG_IGN), as Python sets "
            "it: a write to a reader that is gone then raises BrokenPipeError, an OSError, and "
            "that one reader can be dropped. A reader that leaves is most often no fault."
        ),
    )


def _with_limit(index: Index, found: Finding, process: Process, limit: str) -> Finding:
    """The finding about a process that a limit has killed, with the line that sets that limit."""
    setting = [each for each in marks(index, "limit") if each.about == limit]
    if len(setting) != 1:
        return found
    words, name = mark_words(setting[0]), called(process)
    head = family_head(index, process)
    wait = f" {called(head)} is not told." if head is not None and not head.is_gone else ""
    return replace(
        found,
        evidence=(*found.evidence, f"that limit is set by {words}"),
        cause=(
            f"{found.cause} Most likely it has set that limit itself: {words} sets it for the "
            f"whole process that calls it, and for as long as that lives, whatever {name} does "
            f"afterwards.{wait}"
        ),
        advice=(
            "Set such a limit only in a process that is made for the one task and may be ended by "
            "it (subprocess.run(..., preexec_fn=...), or a new Process for each task), not in a "
            "worker that goes on; and replace workers that have ended: look at their sentinel or "
            "exitcode where their answers are awaited. A higher limit only postpones it."
        ),
    )


_LIMITS: Mapping[int, str] = {Signals.SIGXCPU: "RLIMIT_CPU", Signals.SIGXFSZ: "RLIMIT_FSIZE"}
_TIMERS = (Signals.SIGALRM, Signals.SIGVTALRM, Signals.SIGPROF)


def _with_timer(index: Index, found: Finding) -> Finding:
    """The finding about a process that a timer has killed, with the lines that set timers."""
    timers = marks(index, "alarm")[:2]
    if not timers:
        return found
    left = [each for each in timers if each.about]
    words = [f"a timer is set by {mark_words(each)}" for each in timers]
    if len(timers) == 1 and left:
        cause = found.cause
        raising = left[0].about.partition(RAISE_OF)[2]
        cause += f" {mark_words(left[0])} sets one, and " + (
            f"{left[0].function} cancels it only after line {raising}: an exception of that "
            "line, also one that its caller catches, leaves the timer running."
            if raising
            else f"{left[0].function} returns in line {left[0].about} before it is cancelled."
        )
        advice = (
            "Cancel the timer in a finally block, before the handler of its signal is set back, so "
            "that it ends with the guarded call however that ends. Let the parent look at the "
            "exitcode of its workers, and give what an ended one had to another. A longer time "
            "only postpones it."
        )
        return replace(found, evidence=(*found.evidence, *words), cause=cause, advice=advice)
    return replace(found, evidence=(*found.evidence, *words))
