"""What is read of a job on demand: source lines, values of names, torch's recorder, NCCL RAS.

Lines of source are read once a stack has named them.

Values are read while there is a finding whose cause they would decide. A process with a hook is
asked through it, another one by py-spy, which reads it while it runs and knows no attributes of
objects.

Recorder and RAS are asked only while the main thread of a rank is stalled, or for NCCL waits for
the GPU: the answer is made with the recorder locked, and the difference between all ranks of the
job is the evidence. A worker server is asked only where no hook answers, NCCL RAS only where a rank
has NCCL's library mapped; one request to RAS covers all ranks of the job, on all machines.

In another job no process is asked.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from msgspec import Struct

from mpwatch.collect.job.flight_recorder import (
    SERVER_THREAD,
    NoAnswer,
    ask,
    gauge_of,
    socket_of,
)
from mpwatch.collect.own_threads import OwnThreads
from mpwatch.describe.frames import is_library
from mpwatch.model.collectives import NcclAnswer, NcclStatus
from mpwatch.model.events import HookGauges
from mpwatch.model.history import History
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import Frame, StacksTaken, ValuesRead, WantedFrame
from mpwatch.model.sanitize import clean
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.source_code import (
    LINES_LIMIT,
    Again,
    Coroutines,
    DroppedResult,
    Holder,
    Mark,
    Origin,
    SourceLine,
    SourceRead,
)

if TYPE_CHECKING:
    from mpwatch.collect.source.source_code import SourceCode

POLL_S = 0.01
PROBLEM_LIMIT = 100
"""Characters of an error that are shown."""
VALUES_S = 5.0
"""Shortest interval between two readings of one process by its hook."""
OUTSIDE_S = 15.0
"""The same by py-spy, which takes some 100 ms of cpu."""
STILL_S = 4.0
"""As long as the hook waits before it reads the entries of its recorder."""
ON_GPU_S = 10.0
"""A rank that has done nothing but wait for the GPU for so long may wait in a collective; a
training whose steps are as long is asked as well, which costs it nothing."""
ASK_AGAIN_S = 10.0
INTERVAL_S = 2.0
"""Interval at which the job is checked for stalled ranks."""
RANKS = 64
"""Servers asked at a time, one after another."""
RANK_ROLES = ("rank", "spawned", "main")
SEARCHED = 1024
"""Processes whose descriptors are searched for the listening socket."""

Wanted: TypeAlias = Mapping[ProcessId, Sequence[WantedFrame]]
AskNccl: TypeAlias = Callable[[Sequence[ProcessId], int], NcclAnswer | None]


class _LineRequest(NamedTuple):
    process: ProcessId
    frame: Frame
    since_s: float


class SourceReads:
    """Reads each line of the program at which a stack was taken once, from its source file.

    On a thread of its own: a file of a job that hangs may be on a file system that hangs.
    """

    def __init__(
        self, report: Callable[[SourceRead], None], threads: OwnThreads | None = None
    ) -> None:
        """Make it; the thread starts with the first request.

        Args:
            report: Called on the thread with what was read.
            threads: Starts the thread.
        """
        self._threads = threads or OwnThreads()
        self._report = report
        self._code: SourceCode | None = None
        self._known: dict[tuple[str, int, str], None] = {}
        """The lines that were asked for, the oldest first."""
        self._new: list[tuple[ProcessId, Frame]] = []
        self._requests: queue.SimpleQueue[list[_LineRequest] | None] = queue.SimpleQueue()
        self._files: set[str] = set()
        self._failed: set[str] = set()
        """Files at which the reading failed: they are not read again."""
        self._under_way = 0
        self._done = 0
        self._has_started = False

    def received(self, taken: StacksTaken) -> None:
        """Note the lines of new stacks."""
        for stack in taken.stacks:
            for frame in stack.frames:
                key = (frame.file, frame.line, frame.function)
                if key in self._known or is_library(frame):
                    continue
                if len(self._known) >= LINES_LIMIT:
                    del self._known[next(iter(self._known))]
                self._known[key] = None
                self._new.append((taken.process, frame._replace(locals=())))

    def start_due(self, snapshot: Snapshot) -> None:
        """Begin to read the lines that were noted."""
        requests: list[_LineRequest] = []
        waiting: list[tuple[ProcessId, Frame]] = []
        for process, frame in self._new:
            known = snapshot.get(process)
            started_s = known.sample.born_wall_s if known is not None else None
            if started_s is not None:
                requests.append(_LineRequest(process, frame, started_s))
            elif known is None or known.is_gone:
                # Another process may stand at the same line later.
                self._known.pop((frame.file, frame.line, frame.function), None)
            else:
                waiting.append((process, frame))
        self._new = waiting
        if requests:
            self._under_way += 1
            self._requests.put(requests)
        # Also for requests that were made while no thread could be started.
        if not self._has_started and not self._requests.empty():
            self._has_started = self._threads.start(self._run, "mpwatch-source") is not None

    def wait(self, limit_s: float) -> None:
        """Wait until everything requested was reported, at most this long."""
        end_s = time.monotonic() + limit_s
        while self._has_started and self._done < self._under_way and time.monotonic() < end_s:
            time.sleep(POLL_S)

    def stop(self) -> None:
        """End after the lines at hand, without waiting for that."""
        self._requests.put(None)

    def _run(self) -> None:
        while (requests := self._requests.get()) is not None:
            try:
                self._report(self._read(requests))
            finally:
                self._done += 1

    def _read(self, requests: list[_LineRequest]) -> SourceRead:
        if self._code is None:
            # What reads syntax is imported here: the first screen comes before the first stack.
            from mpwatch.collect.source.source_code import SourceCode

            self._code = SourceCode()
        code = self._code
        lines: list[SourceLine] = []
        dropped: list[DroppedResult] = []
        marks: list[Mark] = []
        problems: list[str] = []
        for process, frame, since_s in requests:
            if frame.file in self._failed:
                continue
            try:
                if frame.file not in self._files:
                    self._files.add(frame.file)
                    dropped += code.dropped(process, frame.file, since_s)
                    marks += code.marks(process, frame.file, since_s)
                # After the marks, for which the files that it imports are read.
                line = code.line(process, frame, since_s)
            except Exception as error:  # noqa: BLE001 - the other files are still to be read
                self._failed.add(frame.file)
                what = clean(f"{type(error).__name__}: {error}", PROBLEM_LIMIT)
                problems.append(f"the source file {frame.file} was not understood ({what})")
                continue
            if line is not None:
                lines.append(line)
        holders: tuple[Holder, ...] | None = None
        again: tuple[Again, ...] | None = None
        origins: tuple[Origin, ...] = ()
        coroutines: Coroutines | None = None
        try:
            holders = code.holders()
            again = code.again()
            origins = code.origins()
            coroutines = code.coroutines()
        except Exception as error:  # noqa: BLE001 - the lines are there
            what = clean(f"{type(error).__name__}: {error}", PROBLEM_LIMIT)
            problems.append(f"the source files were not understood as a whole ({what})")
        problems += [
            f"the source file {clean(file, PROBLEM_LIMIT)} is too long to be read: "
            "no finding knows its code"
            for file in code.too_long()
        ]
        return SourceRead(
            time.monotonic(),
            tuple(lines),
            tuple(dropped),
            tuple(marks),
            holders,
            tuple(problems),
            origins,
            coroutines,
            again,
        )


class Readers(Protocol):
    """Read values by the hook of a process, or from outside."""

    def ask_hook(self, process: ProcessId, what: str, frames: Sequence[WantedFrame]) -> None:
        """Ask a hook; its answer is an input later on."""

    def take_values(self, process: ProcessId, frames: Sequence[WantedFrame]) -> ValuesRead:
        """Read them now, on the calling thread."""
        ...


class ValueReads:
    """Asks for the values that the findings of a snapshot want."""

    def __init__(
        self,
        readers: Readers,
        report: Callable[[ValuesRead], None],
        threads: OwnThreads | None = None,
    ) -> None:
        """Make it; nothing is asked yet.

        Args:
            readers: Read the values.
            report: Called on a thread with what was read from outside.
            threads: Starts that thread.
        """
        self._threads = threads or OwnThreads()
        self._readers = readers
        self._report = report
        self._asked_s: dict[ProcessId, float] = {}
        self._thread: threading.Thread | None = None

    def start_due(self, snapshot: Snapshot, history: History) -> set[ProcessId]:
        """Ask the processes that are due, and return them.

        Args:
            snapshot: The job, with its findings.
            history: Its numbers over time.
        """
        if not snapshot.findings:
            return set()
        # Imported for a finding only: it would be a fiftieth of the time to the first screen.
        from mpwatch.diagnose.analysis.index import Index
        from mpwatch.diagnose.analysis.values import wanted_values

        wanted = wanted_values(Index(snapshot, history), snapshot.findings)
        self._asked_s = {each: at_s for each, at_s in self._asked_s.items() if each in wanted}
        is_busy = self._thread is not None and self._thread.is_alive()
        due, outside = set(), {}
        for process, frames in wanted.items():
            known = snapshot.get(process)
            is_hooked = known is not None and known.hook.state == "ready"
            since_s = snapshot.at_s - self._asked_s.get(process, float("-inf"))
            if since_s < (VALUES_S if is_hooked else OUTSIDE_S) or (is_busy and not is_hooked):
                continue
            self._asked_s[process] = snapshot.at_s
            due.add(process)
            if is_hooked:
                self._readers.ask_hook(process, "values", frames)
            else:
                outside[process] = frames
        if outside:
            self._thread = self._threads.start(self._run, "mpwatch-values", outside)
        # Otherwise nobody waits for them; they are due again later.
        return due if not outside or self._thread is not None else due - outside.keys()

    def _run(self, wanted: Wanted) -> None:
        for process, frames in wanted.items():
            self._report(self._readers.take_values(process, frames))


class WorkerServer(Struct, frozen=True):
    """A worker server."""

    process: ProcessId
    path: str


class WorkerServers:
    """Asks the worker servers of a job on a thread of its own."""

    def __init__(
        self,
        report: Callable[[HookGauges], None],
        ask: Callable[[ProcessId, str], object] | None = None,
        threads: OwnThreads | None = None,
    ) -> None:
        """Make it; nothing is asked yet.

        Args:
            report: Called on the thread with each answer.
            ask: Asks one server for the gauge `collectives`, and raises `NoAnswer`.
            threads: Starts the thread.
        """
        self._threads = threads or OwnThreads()
        self._report = report
        self._ask = ask or _gauge
        self._due_s = float("-inf")
        self._thread: threading.Thread | None = None
        self._told: set[ProcessId] = set()
        """Processes of which an answer was reported."""

    def start_due(self, snapshot: Snapshot) -> bool:
        """Begin to ask, if that is due at this reading; returns whether it is."""
        if snapshot.at_s < self._due_s or (self._thread is not None and self._thread.is_alive()):
            return False
        self._due_s = snapshot.at_s + INTERVAL_S
        found = servers(snapshot)
        if not any(is_still(process) for process, _ in found):
            # What was read of a rank that has made progress since is outdated.
            for process, _ in found:
                if process.process in self._told:
                    self._report(HookGauges(process.process, snapshot.at_s))
            self._told.clear()
            return False
        self._due_s = snapshot.at_s + ASK_AGAIN_S
        asked = [server for _, server in found[:RANKS]]
        self._thread = self._threads.start(self._run, "mpwatch-recorder", asked)
        return True

    def _run(self, asked: Sequence[WorkerServer]) -> None:
        for server in asked:
            try:
                gauge = self._ask(server.process, server.path)
            except NoAnswer:
                continue  # the program may have closed it; its stacks say the rest
            self._told.add(server.process)
            self._report(HookGauges(server.process, time.monotonic(), {"collectives": gauge}))


def _gauge(process: ProcessId, path: str) -> object:
    return gauge_of(ask(process, path))


def servers(snapshot: Snapshot) -> list[tuple[Process, WorkerServer]]:
    """The ranks of a job that have a worker server and no hook that answers."""
    found = []
    for process in snapshot.living():
        if process.hook.state == "ready" or process.role not in RANK_ROLES:
            continue
        if SERVER_THREAD not in [thread.name for thread in process.threads]:
            continue
        fds = process.sample.fds
        path = socket_of(
            process.sample.environment,
            [link.address or "" for link in (fds.links if fds is not None else None) or ()],
        )
        if path is not None:
            found.append((process, WorkerServer(process.process, path)))
    return found


def is_still(process: Process) -> bool:
    """Whether the main thread of a process has stood still for `STILL_S`."""
    main = next((thread for thread in process.threads if thread.tid == process.pid), None)
    return main is not None and main.still_s is not None and main.still_s >= STILL_S


def stands_still(snapshot: Snapshot, rank: Process) -> bool:
    """Whether a rank is still, or polls for the GPU: its collectives wait there."""
    account = snapshot.account.processes.get(rank.process)
    if is_still(rank) or account is None or not account.uncounted:
        return is_still(rank)
    main = account.uncounted[0]
    return main.now.target == "gpu" and snapshot.at_s - main.counted_s >= ON_GPU_S


class NcclStatuses:
    """Asks NCCL RAS on a thread of its own."""

    def __init__(
        self,
        report: Callable[[NcclStatus], None],
        ask: AskNccl | None = None,
        threads: OwnThreads | None = None,
    ) -> None:
        """Make it; nothing is asked yet.

        Args:
            report: Called on the thread with each answer.
            ask: Asks the RAS of some processes at a port: `None` if it does not listen there;
                raises `NoAnswer` or `OSError`.
            threads: Starts the thread.
        """
        self._threads = threads or OwnThreads()
        self._report = report
        self._ask = ask or _ask_nccl
        self._due_s = float("-inf")
        self._thread: threading.Thread | None = None
        self._last: NcclStatus | None = None
        """The newest answer that was reported and still counts."""

    def start_due(self, snapshot: Snapshot) -> bool:
        """Begin to ask, if that is due at this reading; returns whether it is."""
        if snapshot.at_s < self._due_s or (self._thread is not None and self._thread.is_alive()):
            return False
        self._due_s = snapshot.at_s + INTERVAL_S
        ranks = (process for process in snapshot.living() if process.role in RANK_ROLES)
        still = next((r for r in ranks if r.has_nccl and stands_still(snapshot, r)), None)
        if still is None:
            if self._last is not None:
                self._report(NcclStatus(self._last.process, snapshot.at_s))
                self._last = None
            return False
        from mpwatch.collect.job.nccl_ras import port_of

        port = port_of(still.sample.environment)
        if port is None:
            return False
        self._due_s = snapshot.at_s + ASK_AGAIN_S
        users = [process for process in snapshot.living() if process.has_nccl]
        others = [process.process for process in users if process is not still]
        asked = [still.process, *others][:SEARCHED]
        self._thread = self._threads.start(self._run, "mpwatch-nccl", asked, port)
        return True

    def _run(self, processes: Sequence[ProcessId], port: int) -> None:
        try:
            answer = self._ask(processes, port)
        except (NoAnswer, OSError):
            return  # RAS is off or does not respond; the stacks of the ranks say the rest
        if answer is None:
            return
        at_s, last = time.monotonic(), self._last
        is_same = last is not None and last.answer == answer
        since_s = last.since_s if last is not None and is_same else at_s
        self._last = NcclStatus(processes[0], at_s, answer, since_s)
        self._report(self._last)


def _ask_nccl(processes: Sequence[ProcessId], port: int) -> NcclAnswer | None:
    from mpwatch.collect.job.nccl_ras import ask as ask_ras
    from mpwatch.collect.job.nccl_ras import find_listener

    listener = find_listener(processes, port)
    return None if listener is None else ask_ras(listener)
