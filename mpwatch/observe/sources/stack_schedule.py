"""When to take whose stacks: stacks cost a hundred times more than anything else that is read.

A process is looked at when a person asks for it or follows it, when it is seen for the first time,
and when the whole job has begun to stand still: an idle worker of a job that moves is no news. One
that was spawned is looked at a few times more while it is young: at first it only imports. A
process with a hook is asked through it, in microseconds, so these take turns besides; others cost
py-spy's 20 ms of cpu each, and of those only the root is looked at while it works: the more rarely
the longer it goes on as it did.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Set
from typing import NamedTuple, Protocol

from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import StacksTaken
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.observe.sources.collectors import Inbox

STILL_S = 3.0
"""A process none of whose threads used cpu for so long stands still."""
LONGER = 1.5
"""A root that paused and went on stands still again once it has for so many times as long."""
STILL_LIMIT_S = 15.0
"""Whatever it did before, one that has not moved for so long stands still."""
AGAIN_S = 30.0
"""A standing process is looked at again after so long: its stack should not have moved."""
FOLLOW_S = 0.5
FIRST_LOOKS_PER_TICK = 4
HOOKED_LOOKS_PER_TICK = 4
HOOKED_S = 1.5
ROOT_S = 10.0
ROOT_LIMIT_S = 160.0
"""A root that works on with the same company is looked at after twice as long each time."""
REPEATED_LOOKS_PER_TICK = 2
"""Of processes without a hook."""
BUSY_PERCENT = 5.0
YOUNG_S = 30.0
YOUNG_AGAIN_S = 2.0
YOUNG_LOOKS_PER_TICK = 1
"""A child that runs the main program again may do so for some seconds only, and then fails."""


class Taker(Protocol):
    """Takes the stacks of one process; the collector of stacks, or a stand-in."""

    def take(self, process: ProcessId, *, native: bool, locals: bool) -> StacksTaken:
        """Take them now; a problem is in the result."""
        ...


class Request(NamedTuple):
    """One process to look at."""

    process: ProcessId
    native: bool = False
    locals: bool = False


class StackThread:
    """Takes stacks on a thread of its own, one process after another."""

    def __init__(self, taker: Taker, inbox: Inbox) -> None:
        self._taker = taker
        self._inbox = inbox
        self._requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._waiting: set[ProcessId] = set()
        self._thread = threading.Thread(target=self._run, name="mpwatch-stacks", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End after the process at hand."""
        self._requests.put(None)

    def ask(self, request: Request) -> None:
        """Put a process in line, unless it already is."""
        if request.process not in self._waiting:
            self._waiting.add(request.process)
            self._requests.put(request)

    def _run(self) -> None:
        while (request := self._requests.get()) is not None:
            taken = self._taker.take(request.process, native=request.native, locals=request.locals)
            self._waiting.discard(request.process)
            self._inbox.put(taken)


class RootTurn:
    """When the root that works is worth another look: soon after something began, else rarely."""

    def __init__(self) -> None:
        self._company: tuple[int | None, int, bool] | None = None
        self._pause_s = ROOT_S

    def is_due(self, snapshot: Snapshot, root: Process, since_s: float) -> bool:
        """Whether to look again so long after the last look; saying so makes the next one later."""
        company = (root.sample.thread_count, len(snapshot.processes), _runs_unseen(root))
        if company != self._company:
            self._company, self._pause_s = company, ROOT_S
        if since_s < self._pause_s:
            return False
        self._pause_s = min(ROOT_LIMIT_S, 2 * self._pause_s)
        return True


class Standstill:
    """Whether the root stands still: for longer than it is used to before it goes on.

    A main that waits four seconds for each round of batches does so all day long, and each look at
    it and its workers would stop them for nothing.
    """

    def __init__(self) -> None:
        self._stood_s = 0.0
        self._usual_s = 0.0

    def has_begun(self, root: Process | None, at_s: float) -> bool:
        """Whether it stands still now; without a root that could move it is taken to."""
        if root is None or root.is_gone:
            return True
        stood_s = _stood_s(root, at_s) or 0.0
        if stood_s < self._stood_s:
            self._usual_s = max(self._stood_s, self._usual_s / 2)
        self._stood_s = stood_s
        return stood_s >= max(STILL_S, min(STILL_LIMIT_S, LONGER * self._usual_s))


def _runs_unseen(process: Process) -> bool:
    """Whether a thread works of which no stack has been seen."""
    return any(
        not thread.stack and (thread.cpu_percent or 0.0) >= BUSY_PERCENT
        for thread in process.threads
    )


class LookPlan:
    """Decides after each snapshot which processes are worth a look without being asked for."""

    def __init__(self) -> None:
        self._looked_at_s: dict[ProcessId, float] = {}
        self._root_turn = RootTurn()
        self._standstill = Standstill()
        self._followed_at_s = 0.0
        self.followed: ProcessId | None = None

    def is_follow_due(self, now_s: float) -> bool:
        """Whether the followed process is to be looked at again; saying so counts as a look."""
        if self.followed is None or now_s - self._followed_at_s < FOLLOW_S:
            return False
        self._followed_at_s = self._looked_at_s[self.followed] = now_s
        return True

    def due(self, snapshot: Snapshot, spared: Set[ProcessId] = frozenset()) -> list[ProcessId]:
        """Processes to look at now; the followed one has a rhythm of its own.

        Args:
            snapshot: What is known of the job.
            spared: These are not to be touched at the moment.
        """
        at_s = snapshot.at_s
        first: list[ProcessId] = []
        again: list[ProcessId] = []
        hooked: list[tuple[float, ProcessId]] = []
        young: list[tuple[float, ProcessId]] = []
        due: list[ProcessId] = []
        root = snapshot.get(snapshot.root)
        stands = self._standstill.has_begun(root, at_s)
        for process in snapshot.living():
            if not _has_python_stack(process):
                continue
            last_s = self._looked_at_s.get(process.process)
            if process.process == self.followed or process.process in spared:
                continue
            if last_s is None:
                first.append(process.process)
            elif process.hook.state == "ready":
                if at_s - last_s >= HOOKED_S:
                    hooked.append((last_s, process.process))
            elif at_s - last_s >= YOUNG_AGAIN_S and _is_young(snapshot, process):
                young.append((last_s, process.process))
            elif process is root and not stands:
                if self._root_turn.is_due(snapshot, process, at_s - last_s):
                    due.append(process.process)
            elif stands and _is_worth_another(process, at_s, at_s - last_s):
                again.append(process.process)
        due.extend(first[:FIRST_LOOKS_PER_TICK])
        due.extend(process for _, process in sorted(hooked)[:HOOKED_LOOKS_PER_TICK])
        due.extend(process for _, process in sorted(young)[:YOUNG_LOOKS_PER_TICK])
        due.extend(again[:REPEATED_LOOKS_PER_TICK])
        self._looked_at_s.update(dict.fromkeys(due, at_s))
        return due


def _is_young(snapshot: Snapshot, process: Process) -> bool:
    """Whether it was started by spawn or forkserver a moment ago."""
    born_wall_s = process.sample.born_wall_s
    if process.sample.start_method not in ("spawn", "forkserver") or born_wall_s is None:
        return False
    return snapshot.wall_s - born_wall_s < YOUNG_S


def _has_python_stack(process: Process) -> bool:
    return process.sample.is_python and process.sample.state not in ("Z", "X", "D", "T", "t")


def _is_worth_another(process: Process, at_s: float, since_s: float) -> bool:
    """Whether it began to stand still after the last look, or has stood for long since."""
    stood_s = _stood_s(process, at_s)
    if stood_s is None or stood_s < STILL_S:
        return False
    return stood_s < since_s or since_s >= AGAIN_S


def _stood_s(process: Process, at_s: float) -> float | None:
    """For how long none of its threads has used cpu; `None` if one has, or nothing was read.

    A reading that is older than the snapshot stands for a process that has rested since.
    """
    stills = [thread.still_s for thread in process.threads]
    known = [still for still in stills if still is not None]
    rest_s = max(0.0, at_s - process.sample.at_s)
    return min(known) + rest_s if known and len(known) == len(stills) else None


def take_each(
    takers: Callable[[ProcessId], StacksTaken], processes: Iterable[ProcessId]
) -> list[StacksTaken]:
    """Stacks of several processes at once, four at a time; each has its own time limit."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(max_workers=4) as pool:
        return list(pool.map(takers, processes))


FIRST_AFTER_S = 0.3
"""Hooks may introduce themselves first: a process with a hook is asked, not stopped."""
ROUND_S = 2.0
PATIENCE = 10
"""A round that took t seconds of cpu is not followed by another for t times this."""


class RoundTaker(Protocol):
    """Takes stacks one after another on a thread of its own: a `StackThread`, or a stand-in."""

    def start(self) -> None:
        """Begin."""
        ...

    def stop(self) -> None:
        """End after the process at hand."""
        ...

    def ask(self, request: Request) -> None:
        """Put a process in line."""
        ...


class StackRounds:
    """Asks for the stacks of every Python process without a hook, one round after another."""

    def __init__(self, thread: RoundTaker) -> None:
        self._thread = thread
        self._first_s: float | None = None
        self._began_s: float | None = None
        self._cost_s = 0.0
        self._waiting: set[ProcessId] = set()

    @property
    def has_begun(self) -> bool:
        """Whether there was a first round."""
        return self._began_s is not None

    @property
    def is_under_way(self) -> bool:
        """Whether stacks that were asked for have not come yet."""
        return bool(self._waiting)

    def is_due(self, at_s: float) -> bool:
        """Whether it is time for the next round."""
        if self._first_s is None:
            self._first_s = at_s + FIRST_AFTER_S
        if self._began_s is None:
            return at_s >= self._first_s
        pause_s = max(ROUND_S, PATIENCE * self._cost_s)
        return not self._waiting and at_s >= self._began_s + pause_s

    def begin(self, snapshot: Snapshot, at_s: float) -> None:
        """Ask for the stacks of everybody whose hook cannot be asked."""
        if self._began_s is None:
            self._thread.start()
        self._began_s, self._cost_s = at_s, 0.0
        for process in snapshot.living():
            if _needs_a_look(process):
                self._waiting.add(process.process)
                self._thread.ask(Request(process.process))

    def has_taken(self, taken: StacksTaken) -> None:
        """Note what came."""
        if taken.source != "hook":
            self._waiting.discard(taken.process)
            self._cost_s += taken.cost_s or 0.0

    def stop(self) -> None:
        """End after the process at hand."""
        self._thread.stop()


def _needs_a_look(process: Process) -> bool:
    """Whether only a look from outside can tell its stack."""
    return (
        process.sample.is_python
        and process.sample.state not in "ZX"
        and process.hook.state != "ready"
    )
