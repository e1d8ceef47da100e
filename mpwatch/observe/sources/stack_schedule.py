"""The schedule of stacks: when they are taken, and of which processes.

Stacks cost a hundred times more than any other probe. A hook answers in microseconds; py-spy needs
20 ms of cpu for each process. All requests go through `StackSchedule`:
those of the user for one or all processes, of the dashboard's cursor, and of two automatic plans.

`SelectedStacks` serves the dashboard. It takes the stacks of a process when the process is new, and
again when the whole job stops making progress: an idle worker of a job that makes progress does
not need one. A child started by spawn is taken a few more times while it is young, because at first
it only imports. Processes with a hook take turns. Of the others only the root is taken while it
works, at intervals that double as long as nothing about it changes.

A launcher of ranks, such as torchrun, uses cpu at intervals whatever its ranks do. Below one, each
rank counts as a root of its own. Once half of the ranks have stopped, the others are taken, too:
those without cpu time for some seconds at once, those that work as a root that works. Of processes
that have stopped, those that wait unlike the others come first: the one that the others wait for
is among them, and with 64 ranks the last stack is taken seconds after the first.

`StackRounds` serves diagnoses and recordings without a screen: every process, round after round.
"""

from __future__ import annotations

import math
import queue
import time
from collections import Counter
from collections.abc import Callable, Mapping, Set
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from mpwatch.collect.own_threads import OwnThreads
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import StacksTaken
from mpwatch.model.snapshot import Process, Snapshot

if TYPE_CHECKING:
    from mpwatch.observe.sources.source import TakeStacks

STILL_S = 3.0
"""A process none of whose threads has used cpu for this long has stopped."""
LONGER = 1.5
"""A root that has paused before counts as stopped once a pause is this many times as long."""
STILL_LIMIT_S = 15.0
"""A root that has used no cpu for this long counts as stopped, however long it paused before."""
STOPPED_AGAIN_S = 30.0
"""Interval between stacks of a stopped process, whose stacks should not change."""
FOLLOW_S = 0.5
"""Interval between stacks of the followed process."""
FIRST_PER_READING = 4
HOOKED_PER_READING = 4
HOOKED_S = 1.5
"""Interval between stacks of a process with a hook."""
ROOT_S = 10.0
ROOT_LIMIT_S = 160.0
"""Shortest and longest interval between stacks of a root that works."""
REPEATED_PER_READING = 2
"""Least limit for stopped processes without a hook."""
REPEATED_READINGS = 4
"""In so many readings stacks of all processes are taken, if all have stopped."""
RANK_S = 5.0
"""Shortest interval between stacks of a rank that works, where ranks are sampled."""
RANKS_PER_READING = 1
"""So many ranks that work are sampled: 20 ms of cpu a second, whatever their number."""
BUSY_PERCENT = 5.0
YOUNG_S = 30.0
YOUNG_AGAIN_S = 2.0
YOUNG_PER_READING = 1
"""A child that runs the main program again may do so for some seconds only, and then fail."""
FOCUS_HOOKED_S = 3.0
"""Interval for the process under the cursor, if it has a hook."""
FOCUS_S = 30.0
"""Interval for the process under the cursor, with py-spy."""
FOCUS_LIMIT_S = 240.0
"""The interval doubles up to this while the cursor does not move: the user may be absent."""
FIRST_ROUND_S = 0.3
"""Hooks may connect before the first round: a process with a hook is asked, not stopped."""
_DEPTH_LIMIT = 16
"""Processes are not looked for further above others."""
ROUND_S = 2.0
"""Shortest interval between two rounds."""
PATIENCE = 10
"""A round that took t seconds of cpu is followed by a pause of this many times t."""


class StackRequest(Struct, frozen=True):
    """Stacks to take of one process."""

    process: ProcessId
    native: bool = False
    """With the frames of C code, which only py-spy has."""
    locals: bool = False
    """With local variables, which only py-spy has."""


class AutomaticStacks(Protocol):
    """Selects the stacks that are taken without a request."""

    @property
    def is_pending(self) -> bool:
        """Whether stacks that belong to the plan have still to be taken or to arrive."""
        ...

    def due(
        self, snapshot: Snapshot, taken_at_s: Mapping[ProcessId, float], excluded: Set[ProcessId]
    ) -> list[ProcessId]:
        """Processes due at this reading.

        Args:
            snapshot: The job.
            taken_at_s: When stacks of each process were last requested, for whatever reason.
            excluded: Processes that must not be stopped now.
        """
        ...

    def received(self, taken: StacksTaken) -> None:
        """Note stacks that were taken."""
        ...


class StackSchedule:
    """Selects the stacks to request now.

    `request`, `follow` and `focus` may be called by any thread, the rest by the observing one.
    """

    def __init__(self, automatic: AutomaticStacks | None = None) -> None:
        """Make an empty schedule.

        Args:
            automatic: Selects stacks without a request; none by default.
        """
        self.followed: ProcessId | None = None
        self._automatic = automatic
        self._focus = FocusIntervals()
        self._requested: queue.SimpleQueue[TakeStacks] = queue.SimpleQueue()
        self._taken_at_s: dict[ProcessId, float] = {}
        """When stacks of each process were last requested, for whatever reason."""

    @property
    def is_pending(self) -> bool:
        """Whether the automatic plan still waits for stacks."""
        return self._automatic is not None and self._automatic.is_pending

    def request(self, command: TakeStacks) -> None:
        """Take the stacks of one process, or of all, as soon as possible."""
        self._requested.put(command)

    def follow(self, process: ProcessId | None) -> None:
        """Take the stacks of one process every `FOLLOW_S`; `None` ends it."""
        self.followed = process

    def focus(self, process: ProcessId | None) -> None:
        """Take the stacks of the process under the cursor, at intervals by their cost."""
        self._focus.process = process

    def due(self, snapshot: Snapshot, excluded: Set[ProcessId] = frozenset()) -> list[StackRequest]:
        """What to take at a reading of the job, besides `due_between`.

        Args:
            snapshot: The job.
            excluded: Processes that must not be stopped now.
        """
        taken_at_s, at_s = self._taken_at_s, snapshot.at_s
        untouched = excluded if self.followed is None else {*excluded, self.followed}
        due: list[ProcessId] = []
        if self._automatic is not None:
            due += self._automatic.due(snapshot, taken_at_s, untouched)
        focused = self._focus.due(snapshot, taken_at_s, untouched)
        if focused is not None and focused not in due:
            due.append(focused)
        taken_at_s.update(dict.fromkeys(due, at_s))
        for process in taken_at_s.keys() - {each.process for each in snapshot.processes}:
            del taken_at_s[process]
        return [StackRequest(process) for process in due]

    def is_due_between(self, now_s: float, excluded: Set[ProcessId] = frozenset()) -> bool:
        """Whether `due_between` has anything; costs next to nothing."""
        return not self._requested.empty() or self._is_follow_due(now_s, excluded)

    def due_between(
        self, snapshot: Snapshot, now_s: float, excluded: Set[ProcessId] = frozenset()
    ) -> list[StackRequest]:
        """What to take now, also between two readings: what was requested, and the followed one."""
        due = []
        while not self._requested.empty():
            wanted = self._requested.get()
            due += [
                StackRequest(process, wanted.native, wanted.locals)
                for process in python_processes(snapshot)
                if wanted.process in (None, process)
            ]
        if self.followed is not None and self._is_follow_due(now_s, excluded):
            due.append(StackRequest(self.followed))
        self._taken_at_s.update((request.process, now_s) for request in due)
        return due

    def received(self, taken: StacksTaken) -> None:
        """Note stacks that were taken."""
        if self._automatic is not None:
            self._automatic.received(taken)

    def _is_follow_due(self, now_s: float, excluded: Set[ProcessId]) -> bool:
        followed = self.followed
        if followed is None or followed in excluded:
            return False
        return now_s - self._taken_at_s.get(followed, float("-inf")) >= FOLLOW_S


def python_processes(snapshot: Snapshot) -> list[ProcessId]:
    """The processes that have Python stacks."""
    return [
        process.process
        for process in snapshot.living()
        if process.sample.is_python and process.sample.state not in "ZX"
    ]


class SelectedStacks:
    """The automatic plan of the dashboard; see the module."""

    def __init__(self, *, samples_ranks: bool = False) -> None:
        """Make a plan.

        Args:
            samples_ranks: Take stacks of ranks while they work, too, in turns: in how many of them
                a rank waits for others shows which one is slow.
        """
        self._samples_ranks = samples_ranks
        self._turns: dict[ProcessId, RootTurn] = {}
        self._standstills: dict[ProcessId, Standstill] = {}

    @property
    def is_pending(self) -> bool:
        """Never: no caller waits for these stacks."""
        return False

    def received(self, taken: StacksTaken) -> None:
        """Ignore it: the plan goes by what was requested."""

    def due(
        self, snapshot: Snapshot, taken_at_s: Mapping[ProcessId, float], excluded: Set[ProcessId]
    ) -> list[ProcessId]:
        """Processes due at this reading; see `AutomaticStacks.due`."""
        at_s = snapshot.at_s
        first: list[ProcessId] = []
        again: list[ProcessId] = []
        hooked: list[tuple[float, ProcessId]] = []
        young: list[tuple[float, ProcessId]] = []
        sampled: list[tuple[float, ProcessId]] = []
        due: list[ProcessId] = []
        heads = heads_of(snapshot)
        stopped = self._stopped(heads)
        is_waited_for = 2 * len(stopped - {snapshot.root}) >= len(heads) - 1
        if len(heads) > 1 and is_waited_for:
            # Most ranks have stopped: what the others wait for is more than their usual pauses.
            stopped |= {each for each, process in heads.items() if _is_still(process)}
        head_of = _head_finder(snapshot, heads)
        count = 0
        for process in snapshot.living():
            if process.process in excluded or not _can_be_taken(process):
                continue
            count += 1
            last_s = taken_at_s.get(process.process)
            if last_s is None:
                first.append(process.process)
            elif process.hook.state == "ready":
                if at_s - last_s >= HOOKED_S:
                    hooked.append((last_s, process.process))
            elif at_s - last_s >= YOUNG_AGAIN_S and _is_young(snapshot, process):
                young.append((last_s, process.process))
            elif process.process in heads and process.process not in stopped:
                turn = self._turns.setdefault(process.process, RootTurn())
                may_be_due = process is heads[snapshot.root] or is_waited_for
                if may_be_due and turn.is_due(snapshot, process, at_s - last_s):
                    due.append(process.process)
                elif self._samples_ranks and process.sample.rank is not None:
                    sampled.append((last_s, process.process))
            elif head_of(process) in stopped and _has_stopped_since(process, at_s - last_s):
                again.append(process.process)
        due.extend(first[:FIRST_PER_READING])
        due.extend(process for _, process in sorted(hooked)[:HOOKED_PER_READING])
        due.extend(process for _, process in sorted(young)[:YOUNG_PER_READING])
        due.extend(
            process
            for last_s, process in sorted(sampled)[:RANKS_PER_READING]
            if at_s - last_s >= RANK_S
        )
        limit = max(REPEATED_PER_READING, math.ceil(count / REPEATED_READINGS))
        due.extend(_odd_first(snapshot, again)[:limit])
        return due

    def _stopped(self, heads: Mapping[ProcessId, Process | None]) -> set[ProcessId]:
        """The heads that have stopped; those that are no more are forgotten."""
        if self._standstills.keys() != heads.keys():
            self._standstills = {
                each: self._standstills.get(each) or Standstill() for each in heads
            }
            self._turns = {each: turn for each, turn in self._turns.items() if each in heads}
        return {each for each, known in self._standstills.items() if known.has_begun(heads[each])}


def heads_of(snapshot: Snapshot) -> dict[ProcessId, Process | None]:
    """The processes that show whether a part of a job has stopped.

    Returns:
        The root, `None` if it is unknown; of a launcher also the ranks that it has started.
    """
    root = snapshot.get(snapshot.root)
    heads: dict[ProcessId, Process | None] = {snapshot.root: root}
    if root is not None and root.role == "launcher":
        for each in snapshot.living():
            if each.role == "rank" and each.parent == root.process:
                heads[each.process] = each
    return heads


def _head_finder(
    snapshot: Snapshot, heads: Mapping[ProcessId, Process | None]
) -> Callable[[Process], ProcessId]:
    """Finds the head of a process: itself, or the next one above it."""
    if len(heads) == 1:
        return lambda process: snapshot.root

    def head_of(process: Process) -> ProcessId:
        found: Process | None = process
        for _ in range(_DEPTH_LIMIT):
            if found is None or found.process in heads:
                break
            found = snapshot.get(found.parent)
        return found.process if found is not None and found.process in heads else snapshot.root

    return head_of


class RootTurn:
    """Interval of a root that works: short after a change of the job, then doubled each time."""

    def __init__(self) -> None:
        self._seen: tuple[int | None, int, bool] | None = None
        """Numbers of threads and of processes, and whether a thread works without a stack."""
        self._interval_s = ROOT_S

    def is_due(self, snapshot: Snapshot, root: Process, since_s: float) -> bool:
        """Whether the root is due, this long after the last time; if so, the interval doubles."""
        seen = (root.sample.thread_count, len(snapshot.processes), _works_unseen(root))
        if seen != self._seen:
            self._seen, self._interval_s = seen, ROOT_S
        if since_s < self._interval_s:
            return False
        self._interval_s = min(ROOT_LIMIT_S, 2 * self._interval_s)
        return True


def _is_still(process: Process | None) -> bool:
    return process is not None and (_still_s(process) or 0.0) >= STILL_S


class Standstill:
    """Whether the root has used no cpu for longer than its usual pauses.

    A main process may regularly wait four seconds for each round of batches; taking stacks each
    time would stop it and its workers without need.
    """

    def __init__(self) -> None:
        self._still_s = 0.0
        self._usual_s = 0.0

    def has_begun(self, root: Process | None) -> bool:
        """Whether the root has stopped; without a living root the job counts as stopped."""
        if root is None or root.is_gone:
            return True
        still_s = _still_s(root) or 0.0
        if still_s < self._still_s:
            self._usual_s = max(self._still_s, self._usual_s / 2)
        self._still_s = still_s
        return still_s >= max(STILL_S, min(STILL_LIMIT_S, LONGER * self._usual_s))


def _works_unseen(process: Process) -> bool:
    """Whether a thread works of which no stack was taken."""
    return any(
        not thread.stack and (thread.cpu_percent or 0.0) >= BUSY_PERCENT
        for thread in process.threads
    )


def _is_young(snapshot: Snapshot, process: Process) -> bool:
    """Whether it was started by spawn or forkserver less than `YOUNG_S` ago."""
    born_wall_s = process.sample.born_wall_s
    if process.sample.start_method not in ("spawn", "forkserver") or born_wall_s is None:
        return False
    return snapshot.wall_s - born_wall_s < YOUNG_S


def _can_be_taken(process: Process) -> bool:
    return process.sample.is_python and process.sample.state not in ("Z", "X", "D", "T", "t")


def _has_stopped_since(process: Process, since_s: float) -> bool:
    """Whether it stopped after its stacks were taken, or they are older than `STOPPED_AGAIN_S`."""
    still_s = _still_s(process)
    if still_s is None or still_s < STILL_S:
        return False
    return still_s < since_s or since_s >= STOPPED_AGAIN_S


def _odd_first(snapshot: Snapshot, processes: list[ProcessId]) -> list[ProcessId]:
    """The same processes, those first whose main threads wait in a way that few others do."""
    ways = {each: _way_of_waiting(snapshot.get(each)) for each in processes}
    counts = Counter(ways.values())
    return sorted(processes, key=lambda each: counts[ways[each]])


def _way_of_waiting(process: Process | None) -> tuple[str, str | None, str | None] | None:
    """State, kernel function and system call of the main thread; `None` without one."""
    for thread in process.threads if process is not None else ():
        if process is not None and thread.tid == process.pid:
            call = thread.waits_on.call if thread.waits_on is not None else None
            return thread.state, thread.wchan, call
    return None


def _still_s(process: Process) -> float | None:
    """For how long none of its threads has used cpu; `None` if one has, or nothing was read."""
    least_s: float | None = None
    for thread in process.threads:
        still_s = thread.still_s
        if still_s is None:
            return None
        if least_s is None or still_s < least_s:
            least_s = still_s
    return least_s


class FocusIntervals:
    """Intervals of the process under the cursor.

    The cursor must stay on a process from one reading to the next before its stacks are taken. The
    first time that is at once, however new its stacks are.
    """

    def __init__(self) -> None:
        self.process: ProcessId | None = None
        """The process under the cursor."""
        self._stays_on: ProcessId | None = None
        self._count = 0
        """How often stacks were taken since the cursor moved."""
        self._due_at_s: dict[ProcessId, float] = {}
        """When the stacks of each process were last due here."""

    def due(
        self, snapshot: Snapshot, taken_at_s: Mapping[ProcessId, float], excluded: Set[ProcessId]
    ) -> ProcessId | None:
        """The process, if its stacks are due at this reading; see `AutomaticStacks.due`."""
        focused, at_s = self.process, snapshot.at_s
        if focused is None or focused != self._stays_on:
            self._stays_on, self._count = focused, 0
            return None
        process = snapshot.get(focused)
        if process is None or process.is_gone or not _can_be_taken(process):
            return None
        if focused in excluded:
            return None
        interval_s = self._interval_s(process)
        last_s = self._due_at_s.get(focused)
        if last_s is not None and (
            at_s - last_s < interval_s or at_s - taken_at_s.get(focused, last_s) < interval_s / 2
        ):
            return None
        self._count += 1
        self._due_at_s[focused] = at_s
        for gone in self._due_at_s.keys() - {each.process for each in snapshot.processes}:
            del self._due_at_s[gone]
        return focused

    def _interval_s(self, process: Process) -> float:
        if process.hook.state == "ready":
            return FOCUS_HOOKED_S
        return min(FOCUS_LIMIT_S, FOCUS_S * 2.0 ** min(10, max(0, self._count - 1)))


class StackRounds:
    """The automatic plan without a screen: every Python process, one round after another."""

    def __init__(self) -> None:
        self._first_s: float | None = None
        self._began_s: float | None = None
        self._cost_s = 0.0
        self._waiting: set[ProcessId] = set()
        """Processes that py-spy has still to take in this round."""

    @property
    def is_pending(self) -> bool:
        """Whether no round was begun, or stacks of this one are missing."""
        return self._began_s is None or bool(self._waiting)

    def due(
        self, snapshot: Snapshot, taken_at_s: Mapping[ProcessId, float], excluded: Set[ProcessId]
    ) -> list[ProcessId]:
        """All processes, if a round begins; see `AutomaticStacks.due`."""
        at_s = snapshot.at_s
        if not self._is_due(at_s):
            return []
        self._began_s, self._cost_s = at_s, 0.0
        due = [process for process in python_processes(snapshot) if process not in excluded]
        self._waiting = {each for each in due if not has_ready_hook(snapshot, each)}
        return due

    def received(self, taken: StacksTaken) -> None:
        """Note stacks that were taken, and what they cost."""
        if taken.source != "hook":
            self._waiting.discard(taken.process)
            self._cost_s += taken.cost_s or 0.0

    def _is_due(self, at_s: float) -> bool:
        if self._first_s is None:
            self._first_s = at_s + FIRST_ROUND_S
        if self._began_s is None:
            return at_s >= self._first_s
        pause_s = max(ROUND_S, PATIENCE * self._cost_s)
        return not self._waiting and at_s >= self._began_s + pause_s


def has_ready_hook(snapshot: Snapshot, process: ProcessId) -> bool:
    """Whether the hook of a process answers."""
    known = snapshot.get(process)
    return known is not None and known.hook.state == "ready"


class Outside(Protocol):
    """Takes the stacks of one process with py-spy, or imitates that in a test."""

    def take(self, process: ProcessId, *, native: bool, locals: bool) -> StacksTaken:
        """Take them now; a problem is in the result."""
        ...


class StackThreads:
    """Takes stacks from outside on threads of its own, which start with the first request."""

    def __init__(
        self,
        outside: Outside,
        report: Callable[[StacksTaken], None],
        *,
        threads: int = 1,
        own_threads: OwnThreads | None = None,
    ) -> None:
        """Make it.

        Args:
            outside: Takes the stacks; called on several threads if there are several.
            report: Called on such a thread with the stacks.
            threads: How many processes are stopped at the same time at most.
            own_threads: Starts the threads.
        """
        self._own_threads = own_threads or OwnThreads()
        self._outside = outside
        self._report = report
        self._threads = threads
        self._started = 0
        self._requests: queue.SimpleQueue[StackRequest | None] = queue.SimpleQueue()
        self._waiting: set[ProcessId] = set()

    @property
    def is_busy(self) -> bool:
        """Whether stacks are being taken or waited for."""
        return bool(self._waiting)

    def stop(self) -> None:
        """End after the processes at hand, without waiting for that."""
        for _ in range(self._started):
            self._requests.put(None)

    def take(self, request: StackRequest) -> None:
        """Put a process in line, unless it already is; report at once if no thread can start."""
        if request.process in self._waiting:
            return
        while self._started < self._threads:
            if self._own_threads.start(self._run, "mpwatch-stacks") is None:
                break  # the next request tries again
            self._started += 1
        if not self._started:
            problem = "no thread could be started for it"
            at_s = time.monotonic()
            self._report(StacksTaken(request.process, at_s, "py-spy", problem=problem))
            return
        self._waiting.add(request.process)
        self._requests.put(request)

    def _run(self) -> None:
        while (request := self._requests.get()) is not None:
            process = request.process
            try:
                taken = self._outside.take(process, native=request.native, locals=request.locals)
            except Exception as error:  # noqa: BLE001 - the one boundary of this thread
                problem = f"taking stacks failed: {type(error).__name__}: {error}"
                taken = StacksTaken(process, time.monotonic(), "py-spy", problem=problem)
            self._report(taken)
            self._waiting.discard(process)
