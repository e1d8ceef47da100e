"""Jobs in which every process polls: it sleeps, checks, and sleeps again, or waits for such a one.

What such a loop checks (a file, a flag, a counter, whether a process lives) does not show in a
system call that waits, so that no chain of waits leads on from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from signal import SIGCHLD
from typing import NamedTuple

from msgspec import Struct

from mpwatch.describe.processes import wait_verb
from mpwatch.diagnose.analysis.idle_time import last_transfer_s, mean_cpu_percent, quiet_s
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.mechanisms.cases import NAMED, at_line, ended_words
from mpwatch.diagnose.analysis.mechanisms.unreleased import Uncounted, uncounted_in
from mpwatch.diagnose.analysis.process_queries import (
    SERVICE_ROLES,
    WORK_ROLES,
    age_s,
    all_called,
    called,
    children_started_by,
    counted,
    is_manager,
)
from mpwatch.diagnose.analysis.source.lines import main_line, mark_words, marks
from mpwatch.diagnose.analysis.source.loops import Awaited, Condition, condition_of, is_until_told
from mpwatch.diagnose.analysis.stack_patterns import (
    main_shape,
    main_thread,
    own_threads,
)
from mpwatch.diagnose.analysis.waits.blockages import POLLS_PERCENT, at_one_line_s
from mpwatch.diagnose.analysis.waits.providers import ended_children
from mpwatch.model.history import Series, rise
from mpwatch.model.snapshot import Process
from mpwatch.model.source_code import Mark, Statement

POLLS_S = 20.0
"""Until then, a job that only polls is not reported."""
WAKES_OF_A_LOOP = 2
WORKS_FAULTS = 64
"""A process that has taken so many pages within `POLLS_S` does something in its loop."""
FAULT_PARTS = 4
"""Of that time; the part with most of them does not count."""
_PARTS = range(1, FAULT_PARTS + 1)


class InVain(Struct, frozen=True):
    """A job of which no process does anything but poll, or wait for one that polls."""

    pollers: tuple[Process, ...]
    """The root first, where it is one."""
    others: tuple[Process, ...]
    """Processes that wait."""
    ended: tuple[Process, ...]
    forked: tuple[Process, ...]
    """Processes that have copies of the variables of another one, dead or alive."""
    lasted: str
    """For how long, in words."""
    condition: Condition | None = None
    """What the loop of the first one waits for, where its source could be read."""
    by_text: Mark | None = None
    """Where the program takes the newest of numbered files by the order of texts."""
    uncounted: Uncounted | None = None
    """What leaves the counter wrong for which the loop of one of them waits."""

    @property
    def headline(self) -> str:
        """What is seen."""
        first = self.pollers[0]
        names = all_called(self.pollers)
        verb = "sleeps" if len(self.pollers) == 1 else "sleep"
        loop = "in a loop" if len(self.pollers) == 1 else "in loops"
        return (
            f"this job has made no progress for {self.lasted}: {names} {verb} and "
            f"{'checks' if len(self.pollers) == 1 else 'check'} again {loop}{place(first)}"
            f"{'' if self.condition is None else _UNTIL[self.condition.kind]}"
        )

    @property
    def evidence(self) -> Iterator[str]:
        """The lines, and which processes have ended."""
        for process in self.pollers[:NAMED]:
            yield f"{called(process)} has slept again and again{place(process)}, and nowhere else"
        for process in self.others[:NAMED]:
            yield f"{called(process)} waits{place(process)}"
        yield from ended_words(self.ended)

    @property
    def cause(self) -> str:
        """Why the condition of the loop may never come true."""
        those = "the loop" if len(self.pollers) == 1 else "these loops"
        words = f"What {those} wait{'s' if len(self.pollers) == 1 else ''} for does not come. "
        running = self.pollers[1:] + self.others
        if self.ended and not running:
            count = counted(len(self.ended), "process", "processes")
            words += (
                f"{count} of the job ended, and no other one is left: they have not done all that "
                "they were to do (count up, set a flag, write a file), even if they ended without "
                "an error. "
            )
        elif self.ended:
            words += (
                f"{all_called(self.ended, NAMED)} {'has' if len(self.ended) == 1 else 'have'} "
                "ended and may have left something undone, or left a lock file behind. "
            )
        else:
            words += "No process of the job is at work that could make it true. "
        joins = [each for each in self.others if main_shape(each) == "joins-process"]
        if joins:
            words += (
                f"{all_called(joins)} {wait_verb(joins)} for the exit of "
                "such a process, and does nothing after that line before. "
            )
        if self.uncounted is not None:
            return self.uncounted.cause
        if self.by_text is not None:
            return words + _BY_TEXT.format(place=mark_words(self.by_text), name=self.by_text.about)
        if self.condition is not None:
            return words + _CAUSES[self.condition.kind].format(loop=self.condition.words)
        if self.forked:
            words += f"If it is a plain variable, attribute or list: {_COPIES} "
        return (
            f"{words}If it is a file: it may have another name or folder, or be the lock file of a "
            "run that has ended."
        )

    @property
    def advice(self) -> str:
        """What to change, by what the loop waits for."""
        if self.uncounted is not None:
            return self.uncounted.advice
        if self.by_text is not None:
            return _BY_NUMBER
        if self.condition is None:
            return f"{_CONDITION} {_DEADLINE} {_SHARED} {_OUTSIDE}"
        return _ADVICE[self.condition.kind]


_BY_TEXT = (
    "Most likely the newest file is not taken for the newest: {place} goes by the order of texts, "
    "and the numbers in names such as {name} have no fixed width. In that order 10 comes before 9: "
    "from the tenth file on, an older one is found again and again."
)
_BY_NUMBER = (
    "Sort by the number (key=lambda path: int(...)) or by the time of change "
    "(key=os.path.getmtime), or write the number with a fixed width (f'{version:06d}'). More time "
    "or shorter sleeps do not help."
)
_UNTIL: Mapping[Awaited, str] = {
    "file-removed": ", until a file is removed",
    "file-made": ", until there is a file",
    "variable": ", until a variable changes",
    "work-done": ", until work is done",
}
_COPIES = "each process has its own copy, and a change in one does not show in another."
_CAUSES: Mapping[Awaited, str] = {
    "file-removed": (
        "The loop {loop} ends when a file is removed, as one that waits for a lock file does, and "
        "no process of this job is at work that could remove it. Most likely the one that made the "
        "file has ended without doing so, killed or by an exception, in this run or an earlier one."
    ),
    "file-made": (
        "The loop {loop} ends when there is a file, and no process of this job is at work that "
        "could make it. Most likely the one that should has ended before, or uses another name or "
        "folder."
    ),
    "variable": (
        "The loop {loop} ends when a variable of its own process changes. Unless it is in shared "
        f"memory, {_COPIES}"
    ),
    "work-done": (
        "The loop {loop} ends when the work that was given out is done, as it counts it. So it "
        "counts something as unfinished that no process does: a task of a process that was ended "
        "or replaced, one whose result was lost, or a state that nothing sets any more."
    ),
}
_CONDITION = (
    "Look at the condition of the loop at that line (mpwatch dump --locals shows the values)."
)
_DEADLINE = (
    "Give the loop a deadline after which it raises, and let it check that the processes which are "
    "to make it true are alive (is_alive(), exitcode)."
)
_SHARED = "Flags and counters between processes have to be multiprocessing.Event or Value."
_OUTSIDE = "Nothing is wrong if it waits for something from outside."
_ADVICE: Mapping[Awaited, str] = {
    "file-removed": (
        "Remove the file, if no other job uses it (mpwatch dump --locals shows its path), and the "
        "loop goes on. Use "
        "fcntl.flock() on an open file, or the package filelock: such a lock ends with the process "
        "that has it, also if that is killed. That a file exists is no lock: a finally block "
        f"removes it after an exception, but not after SIGKILL. {_DEADLINE}"
    ),
    "file-made": (
        "Compare the path (mpwatch dump --locals shows it) with what the other processes have "
        f"written, and check how they ended. {_DEADLINE} {_OUTSIDE}"
    ),
    "variable": f"{_SHARED} {_DEADLINE}",
    "work-done": (
        "Let the exit of a process end what it was given: check is_alive() or exitcode in that "
        "loop, take an ended process out of what counts as running, and give its task to another "
        "one or count it as failed. mpwatch dump --locals shows what the loop counts. More "
        f"processes or waiting longer do not help. {_OUTSIDE}"
    ),
}


@derived
def polls_in_vain(index: Index) -> InVain | None:
    """The job, if no process of it does anything but poll at one line, or wait."""
    pollers, others, times = [], [], []
    root = index.snapshot.root
    has_manager = any(map(is_manager, index.snapshot.living()))
    for process in index.snapshot.living():
        if process.role in SERVICE_ROLES or process.sample.state == "Z":
            continue
        if is_manager(process):
            continue
        asleep_s = _polls_s(index, process, may_use_files=has_manager)
        quiet = quiet_s(process, index)
        if _is_new(index, process):
            return None
        if asleep_s < POLLS_S and _awaits_work(index, process):
            asleep_s = _polls_s(index, process, may_use_files=True)
        if asleep_s >= POLLS_S:
            pollers.append(process)
            times.append(asleep_s)
        elif quiet is not None and quiet >= POLLS_S:
            others.append(process)
            times.append(quiet)
        else:
            return None
    if not pollers or (index.snapshot.get(root) not in pollers and not _is_waited_for(others)):
        return None
    pollers.sort(key=lambda process: process.process != root)
    ended = tuple(
        each
        for each in index.snapshot.processes
        if (each.ended is not None or each.sample.state == "Z") and each.role not in SERVICE_ROLES
    )
    forked = tuple(each for each in index.snapshot.processes if each.sample.start_method == "fork")
    conditions = {condition_of(index, process) for process in pollers}
    condition = conditions.pop() if len(conditions) == 1 else None
    sorted_by = marks(index, "text-order")
    may_be_name = len(sorted_by) == 1 and (condition is None or condition.kind == "file-made")
    return InVain(
        tuple(pollers),
        tuple(others),
        ended,
        forked,
        index.lasting(min(times)),
        condition,
        sorted_by[0] if may_be_name else None,
        next(filter(None, (uncounted_in(index, each) for each in pollers)), None),
    )


AWAITS_S = 30.0
"""Until then, a loop that waits while others work is not reported: programs start with some."""
_BODY_LINES = 2
"""A loop of more lines does something itself."""
_COMPARES = re.compile(r"while (?:not )?.+?(?:[<>]=?|!=|==|\(\)).*:")
_SIZE = re.compile(
    r"\b(?:len|size|qsize|count|__len__)\(|\b(?:size|count|stored|filled|num_\w+|n_\w+)\b"
)


class AwaitsInLoop(NamedTuple):
    """A process that only checks a condition again and again, while others of the job work."""

    process: Process
    loop: Statement
    lasted: str
    """For how long, in words."""
    working: tuple[Process, ...]
    bound: Mark | None
    """What bounds the deques of the program, if it is one bound and the loop waits for a size."""

    @property
    def summary(self) -> str:
        """What is seen."""
        return (
            f"{called(self.process)} has only slept and checked again{place(self.process)} for "
            f"{self.lasted}, in `{self.loop.text}` of line {self.loop.line}"
        )

    @property
    def evidence(self) -> Iterator[str]:
        """Who works meanwhile, and what bounds the size."""
        yield f"{all_called(self.working[:NAMED])} {'works' if len(self.working) == 1 else 'work'}"
        if self.bound is not None:
            yield f"{mark_words(self.bound)} keeps no more than {self.limit}"

    @property
    def limit(self) -> str:
        """The bound as the program writes it."""
        return self.bound.about.partition(" ")[2] if self.bound is not None else ""

    def cause(self, values: str, is_beyond: bool) -> str:
        """Why the condition may not change.

        Args:
            values: The values of the condition, as far as they are known.
            is_beyond: Whether they show that it waits for more than the bound.
        """
        known = f"{values}. " if values else ""
        if self.bound is not None and is_beyond:
            return (
                f"{known}The loop waits for more than can ever be there: {mark_words(self.bound)} "
                f"drops the oldest when it has {self.limit}. However long the others work, the "
                "loop does not end."
            )
        words = (
            f"{known}The loop ends when that condition is no longer true. Nothing is wrong if the "
            "others bring that about, as where a buffer has to be filled first."
        )
        if self.bound is not None:
            words += (
                f" But {mark_words(self.bound)} drops the oldest when it has {self.limit}: if the "
                "loop waits for more than that, it never ends."
            )
        return words

    @property
    def advice(self) -> str:
        """What to change."""
        if self.bound is not None:
            return (
                f"Compare the number that the loop waits for with {self.limit}: it has to be "
                "smaller, or count what has been added, and not what is kept. Check that where the "
                "settings are read. Waiting longer, or more processes, do not help."
            )
        return (
            "Compare what the loop waits for with what the others have done so far (mpwatch dump "
            "--locals shows the values), and log it in that loop."
        )


def awaits_in_loops(index: Index) -> Iterator[AwaitsInLoop]:
    """The processes that only poll a condition, while others of the job work."""
    loops = [
        (process, loop)
        for process in index.snapshot.living()
        if (loop := _loop_without_body(index, process)) is not None
    ]
    if not loops:
        return
    working = tuple(
        each
        for each in index.snapshot.living()
        if each.role not in SERVICE_ROLES and not is_manager(each) and _works(index, each)
    )
    for process, loop in loops:
        if process in working or not working:
            continue
        for_s = _polls_s(index, process, may_use_files=True)
        if for_s >= AWAITS_S:
            yield AwaitsInLoop(process, loop, index.lasting(for_s), working, _bound_of(index, loop))


def _bound_of(index: Index, loop: Statement) -> Mark | None:
    """What bounds all deques of the program, where a loop waits for a size; the first of them."""
    if _SIZE.search(loop.text) is None:
        return None
    bounds = [each for each in marks(index, "bounded") if each.about.startswith("deque ")]
    return bounds[0] if len({each.about for each in bounds}) == 1 else None


def _works(index: Index, process: Process) -> bool:
    cpu_percent = mean_cpu_percent(process, index.history)
    return cpu_percent is not None and cpu_percent > POLLS_PERCENT


def _loop_without_body(index: Index, process: Process) -> Statement | None:
    """The header of the loop that a main thread is in, if it does nothing but sleep in it.

    One that looks at the clock, at a flag to stop or at children waits for its time, and is none.
    """
    if process.role in SERVICE_ROLES or is_manager(process):
        return None
    found = main_line(index, process)
    if found is None or found[1].until_exits is not None:
        return None
    frame, line = found
    for each in line.deciders:
        header = each.statement
        if header.line < frame.line <= each.last and each.last - header.line <= _BODY_LINES:
            is_asked = _COMPARES.fullmatch(header.text) and not is_until_told(header.text)
            return header if is_asked and "sleep(" in line.statement.text else None
    return None


class Connecting(Struct, frozen=True):
    """Processes that sleep between attempts to connect, and get no further."""

    processes: tuple[Process, ...]
    """All at one line."""
    connects: Statement
    lasted: str
    """For how long each of them has done nothing else, in words."""
    ended: tuple[Process, ...]
    """Processes of the job whose exit was seen."""
    kept: tuple[tuple[Process, int], ...]
    """Parents that keep the objects of ended children, and of how many."""

    @property
    def headline(self) -> str:
        """What is seen."""
        names, verb = all_called(self.processes), "tries" if len(self.processes) == 1 else "try"
        gone = f"; {all_called(self.ended[:NAMED])} has ended" if len(self.ended) == 1 else ""
        return (
            f"{names} {verb} to connect again and again{place(self.processes[0])}, for "
            f"{self.lasted}: no server answers{gone}"
        )

    @property
    def evidence(self) -> Iterator[str]:
        """Where they sleep, and which processes have ended."""
        yield (
            f"that line is reached when `{self.connects.text}` in line {self.connects.line} has "
            "failed, in a loop that then tries again"
        )
        yield from ended_words(self.ended)
        for process, count in self.kept if not self.ended else ():
            children = counted(count, "child", "children")
            which = "object" if count == 1 else "objects"
            yield f"{called(process)} keeps the {which} of {children} that ended before"

    @property
    def cause(self) -> str:
        """Why they do not get further."""
        if self.ended:
            names, is_one = all_called(self.ended[:NAMED]), len(self.ended) == 1
            return (
                f"Most likely {names} {'was' if is_one else 'were'} the server, or had started it, "
                f"and {'has' if is_one else 'have'} ended. Nothing starts it again, and nothing "
                "ends the attempts."
            )
        gone = " A child of the job has ended before it was watched." if self.kept else ""
        return (
            "The server has ended, listens at another address, or has not begun to listen yet."
            f"{gone} Nothing ends the attempts but a server that listens."
        )

    @property
    def advice(self) -> str:
        """What to change."""
        return (
            "Give the attempts an end (a number, or a time) after which they raise, and let the "
            "process that starts the server watch it: end the job, or start it anew, when it has "
            "ended. Look for the reason of its end in its output. Restarting those that try does "
            "not help."
        )


def connecting_in_vain(index: Index) -> Iterator[Connecting]:
    """The processes that have only slept between attempts to connect, those of one line as one."""
    found: dict[Statement, list[Process]] = {}
    for process in index.snapshot.living():
        at = main_line(index, process)
        if at is None or at[1].connects is None:
            continue
        if at_one_line_s(index, process.process) >= POLLS_S:
            found.setdefault(at[1].connects, []).append(process)
    ended = tuple(
        each
        for each in index.snapshot.processes
        if each.ended is not None and each.role not in SERVICE_ROLES
    )
    for statement, processes in found.items():
        for_s = min(at_one_line_s(index, each.process) for each in processes)
        # Forked ones have inherited these objects.
        parents = {each.parent for each in processes}
        kept = tuple(
            (each, count)
            for each in index.snapshot.living()
            if each.process in parents and (count := ended_children(index, each.process))
        )
        yield Connecting(tuple(processes), statement, index.lasting(for_s), ended, kept)


class Unseen(Struct, frozen=True):
    """A process whose loop asks whether its children live, of which none is left."""

    process: Process
    condition: Statement
    ended: tuple[Process, ...]
    """Those whose exit was seen."""
    kept: int
    """Children that have ended of which it keeps the objects, by its descriptors."""
    is_ignored: bool
    """Whether it ignores SIGCHLD, in place of handling it."""
    reaped_at: Mark | None
    """What takes the exit status of any child, where the source shows it."""
    lasted: str
    """For how long, in words."""

    @property
    def headline(self) -> str:
        """What is seen."""
        return (
            f"{called(self.process)} polls its children{place(self.process)} and has none left: "
            "their exit status was taken by something else, so they count as alive for ever"
        )

    @property
    def evidence(self) -> Iterator[str]:
        """The loop, the signal and the children."""
        condition = f"`{self.condition.text}` of line {self.condition.line}"
        yield (
            f"it has slept again and again{place(self.process)} for {self.lasted}, in "
            f"a loop that ends by {condition}"
        )
        verb = "ignores" if self.is_ignored else "handles"
        yield f"it has no child of its own left, and {verb} SIGCHLD"
        yield from ended_words(self.ended)
        if not self.ended:
            yield f"it keeps the objects of {counted(self.kept, 'ended child', 'ended children')}"
        if self.reaped_at is not None:
            yield f"the exit status of any child is taken by {mark_words(self.reaped_at)}"

    @property
    def cause(self) -> str:
        """Why the loop does not end."""
        how = (
            "The process ignores SIGCHLD, so the kernel discards the exit status of each child"
            if self.is_ignored
            else "The exit status of a child can be taken once. "
            + (
                "Most likely its handler for SIGCHLD takes that of every child"
                if self.reaped_at is None
                else f"{mark_words(self.reaped_at)} takes that of every child"
            )
        )
        return (
            f"{how}, also of those that multiprocessing or subprocess has started. Their poll() "
            "then finds no such child (ECHILD) and returns None, so that is_alive() stays true and "
            "exitcode None: the loop never ends, though all of them have exited."
        )

    @property
    def advice(self) -> str:
        """What to change."""
        return (
            "Take the exit status only of processes that were started for it: os.waitpid(pid, ...) "
            "or Popen.poll() of these, in place of os.waitpid(-1, ...), and leave SIGCHLD at "
            "signal.SIG_DFL where processes of multiprocessing are used. Or watch the sentinel of "
            "each process (multiprocessing.connection.wait), which shows its end in any case."
        )


_SIGCHLD = 1 << (SIGCHLD - 1)
_HELPER_S = 20.0
"""A child of no known kind that is younger is a program that is started now and then."""
_LITERAL = re.compile(r"\bsleep\((\d+(?:\.\d*)?|\.\d+)\)")
_ROUNDS = 4
_UNKNOWN_SLEEP_S = 50.0


def polls_reaped_children(index: Index) -> Iterator[Unseen]:
    """The processes that poll for the exits of children that they can no longer notice.

    Such a process has one Python thread, handles or ignores SIGCHLD, and has come round its loop
    several times since the last of its children has gone.
    """
    found = (_polls_reaped(index, process) for process in index.snapshot.living())
    return (each for each in found if each is not None)


def _polls_reaped(index: Index, process: Process) -> Unseen | None:
    found = main_line(index, process)
    line = found[1] if found is not None else None
    if line is None or line.until_exits is None:
        return None
    is_ignored = bool((process.sample.signals_ignored or 0) & _SIGCHLD)
    if not is_ignored and not (process.sample.signals_caught or 0) & _SIGCHLD:
        return None
    if sum(bool(each.stack) for each in own_threads(index, process)) != 1:
        return None  # threads of native code, as of numpy, have none
    children = [
        each for each in children_started_by(index, process) if each.role not in SERVICE_ROLES
    ]
    if any(not each.is_gone and not _is_helper(index, each) for each in children):
        return None
    gone = tuple(each for each in children if each.ended is not None and each.role in WORK_ROLES)
    kept = ended_children(index, process.process)
    if not gone and not kept:
        return None
    since = [index.snapshot.at_s - each.ended.at_s for each in gone if each.ended is not None]
    for_s = min([at_one_line_s(index, process.process), *since])
    sleeps = _LITERAL.search(line.statement.text)
    needed_s = _UNKNOWN_SLEEP_S if sleeps is None else _ROUNDS * float(sleeps[1])
    if for_s < max(POLLS_S, needed_s):
        return None
    reaps = marks(index, "reap")
    at = reaps[0] if len(reaps) == 1 else None
    return Unseen(process, line.until_exits, gone, kept, is_ignored, at, index.lasting(for_s))


def _is_helper(index: Index, child: Process) -> bool:
    """Whether a child is a program that has only just been started."""
    age = age_s(index.snapshot, child)
    return child.role == "other" and age is not None and age < _HELPER_S


def _awaits_work(index: Index, process: Process) -> bool:
    """Whether the loop of a process ends when other processes, which all wait, have done work.

    What it reads and writes meanwhile is no progress then: it looks at figures, and logs them.
    """
    condition = condition_of(index, process)
    others = [each for each in index.snapshot.living() if each.role not in SERVICE_ROLES]
    return (
        condition is not None
        and condition.kind == "work-done"
        and any(each.process != process.process for each in others)
    )


def _polls_s(index: Index, process: Process, *, may_use_files: bool) -> float:
    """Seconds for which a process has only slept at one line, and neither read nor written.

    Args:
        index: The snapshot.
        process: The process.
        may_use_files: Whether what it reads and writes does not count. What it asks a manager may
            be what its loop waits for.
    """
    if _is_in_one_sleep(index, process):
        return 0.0
    at_one_line = at_one_line_s(index, process.process)
    if not at_one_line:
        return 0.0  # most wait, and do not sleep: their counters need not be looked at
    cpu_percent = mean_cpu_percent(process, index.history)
    if cpu_percent is not None and cpu_percent > POLLS_PERCENT:
        return 0.0
    if _takes_memory(index.history.of(process.process, "minor_faults")):
        return 0.0  # what only checks again takes none
    others = [each for each in own_threads(index, process) if each is not main_thread(process)]
    if any((each.still_s or 0.0) < POLLS_S for each in others):
        return 0.0  # the threads of a process give each other work without a system call
    quiet_s = index.snapshot.at_s - last_transfer_s(index, process)
    return at_one_line if may_use_files else min(at_one_line, max(0.0, quiet_s))


def _takes_memory(minor_faults: Series) -> bool:
    """Whether a process takes new pages again and again, as one does that works in its loop.

    All at once, its hook may have: it loads a check when an observer asks for one.
    """
    parts = [rise(minor_faults, within_s=POLLS_S * n / FAULT_PARTS) for n in _PARTS]
    most = sorted(later - earlier for earlier, later in pairwise([0.0, *parts]))
    return sum(most[:-1]) >= WORKS_FAULTS * (FAULT_PARTS - 1) / FAULT_PARTS


def _is_in_one_sleep(index: Index, process: Process) -> bool:
    """Whether a main thread has not woken up in all this time: it sleeps for long, and polls not.

    `False` where that is not known: each time py-spy takes its stacks it wakes up, too.
    """
    stops = index.history.of(process.process, "stack_stops")
    woken = index.history.of(process.process, "voluntary_switches")
    since_s = index.snapshot.at_s - POLLS_S
    if (stops and stops[-1].at_s >= since_s) or len(woken) < 2 or woken[0].at_s > since_s:
        return False
    return rise(woken, within_s=POLLS_S) < WAKES_OF_A_LOOP


def _is_new(index: Index, process: Process) -> bool:
    """Whether a process was started a short time ago: a parent that starts some gets on."""
    age = age_s(index.snapshot, process)
    return age is not None and age < POLLS_S


def _is_waited_for(others: list[Process]) -> bool:
    """Whether the root joins a child, as one does whose children poll."""
    thread = main_thread(others[0]) if others else None
    wait = thread.waits_on if thread is not None else None
    return wait is not None and wait.kind in ("child", "futex", "pipe-read", "poll")


def place(process: Process) -> str:
    """Its line, ` at train.py:9 wait_for`; empty without a stack."""
    return at_line(main_thread(process))
