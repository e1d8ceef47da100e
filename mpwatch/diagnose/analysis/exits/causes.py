"""Why a process has exited: by an exception, by its own watchdog, or by a signal and its sender.

What hooks report comes first, then what the source of the job shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from signal import Signals

from msgspec import Struct

from mpwatch.describe import processes
from mpwatch.describe.frames import frame_words, own_frames
from mpwatch.diagnose.analysis.exits.kinds import (
    TOGETHER_S,
    cpu_limit_evidence,
    death_of,
    last_seen,
)
from mpwatch.diagnose.analysis.exits.silence import AtWork, silent_at_work
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.process_queries import all_called, called, family_head
from mpwatch.diagnose.analysis.source.costs import (
    SlowPattern,
    only_slow_pattern,
    slow_pattern,
)
from mpwatch.diagnose.analysis.source.lines import mark_place, mark_words, marks, source_of
from mpwatch.diagnose.analysis.stack_patterns import functions_of, main_thread, user_frame
from mpwatch.diagnose.analysis.throughput.shares import main_account
from mpwatch.diagnose.known_errors import evidence_of, first_of, gives, place_of
from mpwatch.model.account import NO_CORE, RUNNING_KINDS, ThreadAccount
from mpwatch.model.samples import Ended, Frame
from mpwatch.model.snapshot import LogEntry, Process, Snapshot
from mpwatch.model.source_code import RAISE_OF, Mark, Statement
from mpwatch.model.units import seconds_text


class Why(Struct, frozen=True):
    """Why a process ended, as far as that is known."""

    brief: str
    """For the summary, after the way it ended; may be empty."""
    cause: str
    advice: str


def why_ended(
    index: Index,
    process: Process,
    ended: Ended,
    by: tuple[str | None, LikelyKiller | None, Mark | None],
    raised: Sequence[str],
) -> Why:
    """What is told of the reason.

    Args:
        index: The snapshot.
        process: The process.
        ended: How it ended.
        by: Who has sent it a signal as a hook reports, who may have as the source shows, and the
            statement by which it may have ended itself.
        raised: What is known of an exception.
    """
    sender, killer, group = by
    cause = _cause(index, process, ended)
    busy = busy_at_end(index, process)
    under = _condition_of(index, sender) if sender is not None else ""
    if busy is not None and not busy.is_seen and not (under or (killer and killer.under)):
        busy = None
    if busy is not None and sender is not None:
        return _why_killed_at_work(busy, f"{sender} ended it{under}")
    if busy is not None and killer is not None:
        who = f"{killer.process.rstrip(',')} at {killer.place}"
        return _why_killed_at_work(busy, f"Most likely {who} ended it{killer.under}")
    work = silent_at_work(index, process, sender, killer.mark if killer is not None else None)
    if work is not None:
        return _why_silent(work, under, sender, killer)
    if sender is not None:
        cause = (
            f"{sender} ended it{under}. Such a signal ends a process at any line. {_STAYS_LOCKED}"
        )
        brief = _briefly(index.snapshot, process) or _watchdog_words(index, process, ended)
        return Why(brief, cause, ADVICE_SENDER)
    if killer is not None:
        brief = f", most likely by {killer.process.rstrip(',')} at {killer.place}"
        return Why(brief, cause, f"Look at the condition for {killer.line} first. {ADVICE_SENDER}")
    if group is not None:
        brief = f", most likely by {mark_place(group)} in the process itself"
        return Why(brief, _cause_of_group(group), _ADVICE_GROUP)
    brief = _briefly(index.snapshot, process) or _watchdog_words(index, process, ended)
    return Why(brief, cause, _advice(index, process, ended, raised=raised))


class BusyAtEnd(Struct, frozen=True):
    """A process that was computing last, and in a regular expression that may take long."""

    process: Process
    place: str
    """`cleaning.py:18 normalize`."""
    pattern: SlowPattern
    computed_s: float
    """How long it was seen to compute in its last seconds, at that line."""
    is_seen: bool = True
    """Whether it was seen at that line; else its line is not known, and only that one of the
    program takes long."""

    @property
    def evidence(self) -> tuple[str, ...]:
        """How long it was seen there."""
        if self.computed_s < SEEN_BUSY_S:
            return ()
        where = "at that line" if self.is_seen else "at lines that were not seen"
        return (f"it had computed {where} for {seconds_text(self.computed_s)} by then",)


SEEN_BUSY_S = 1.0
"""A process that was seen to compute at one line for so long was busy with it."""


def busy_at_end(index: Index, process: Process) -> BusyAtEnd | None:
    """The regular expression in which a process was computing last; `None` for none of this kind.

    Where no stack of its last seconds was taken, the only one of the program.
    """
    thread, account = main_thread(process), main_account(index, process.process)
    if account is not None and not (account.now.kind in RUNNING_KINDS or account.now == NO_CORE):
        return None
    frame = user_frame(thread.stack) if thread is not None else None
    seen = slow_pattern(index, thread.stack) if thread is not None else None
    if frame is not None and seen is not None:
        place = frame_words(frame)
        return BusyAtEnd(process, place, seen, _computed_s(account, place))
    only = only_slow_pattern(index) if frame is None else None
    computed_s = _computed_s(account, "")
    if only is None or computed_s < SEEN_BUSY_S:
        return None
    return BusyAtEnd(process, mark_place(only[0]), only[1], computed_s, is_seen=False)


def _computed_s(account: ThreadAccount | None, place: str) -> float:
    """How long a thread was seen to compute at a line in its last 5 to 10 s."""
    return sum(
        weight
        for bucket in (account.buckets[-2:] if account is not None else ())
        for each, weight in bucket.tally.seen.items()
        if each.kind == "computing" and each.place == place
    )


def _condition_of(index: Index, sender: str) -> str:
    """The condition for the line that has sent a signal, `, under `if ...` in line 50`, or empty.

    Most likely that of one of several ways to the line, where it compares a time.

    Args:
        index: The snapshot.
        sender: As `sender_of` says it, `main (12) at guard.py:25`.
    """
    found = [
        _under(mark)
        for mark in marks(index, "kills")
        if sender.endswith(f" at {mark.file.rpartition('/')[2]}:{mark.statement.line}")
    ]
    known = [each for each in found if each]
    if len(known) != 1:
        return ""
    return known[0] if len(found) == 1 else f", most likely{known[0].removeprefix(',')}"


def _why_killed_at_work(busy: BusyAtEnd, ended: str) -> Why:
    """Why a process was ended that was busy with a regular expression."""
    name, pattern = called(busy.process), busy.pattern
    was, sure, then = f"{name} was busy", "most likely", "most likely"
    if not busy.is_seen:
        was, sure, then = f"{name} computed until then. Possible: it was busy", "possibly", "then"
    elif busy.computed_s < SEEN_BUSY_S:
        was = f"{name} was most likely busy"
    return Why(
        f", {sure} while it was busy with a regular expression at {busy.place}",
        f"{ended}. {was} at {busy.place}: {pattern.words}. "
        f"{pattern.reason} re holds the GIL for the whole of a call, so that no other thread of "
        f"the process could run meanwhile: {then} one that has to show that it is alive (a "
        f"heartbeat) did not, and a healthy process was taken for dead. {_STAYS_LOCKED}",
        f"{pattern.advice} Or send what shows that it is alive from a process of its own, as one "
        "more thread does not get the GIL. A longer limit helps only where it is longer than the "
        "worst text takes; more memory, more workers or more frequent heartbeats do not.",
    )


def _why_silent(work: AtWork, under: str, sender: str | None, killer: LikelyKiller | None) -> Why:
    """Why a process was ended that was at one line for longer than its silence was borne with."""
    if sender is not None:
        ended = f"{sender} ended it{under or work.condition}"
    else:
        who = f"{killer.process.rstrip(',')} at {killer.place}" if killer is not None else "It"
        ended = f"Most likely {who} ended it{killer.under if killer is not None else ''}"
    return Why(work.brief, f"{ended}. {work.cause} {_STAYS_LOCKED}", work.advice)


def _leads_to(index: Index, stack: Sequence[Frame], mark: Mark) -> bool:
    """Whether a thread is in a loop in which a statement runs, or a call that leads to it.

    Or in a function that leads to it, which a loop of the program calls again and again.
    """
    loops, functions, _ = mark.about.split("; ", 2)
    for number, frame in enumerate(stack):
        if frame.file != mark.file:
            continue
        if any(str(each.line) in loops.split(", ") for each in _loops_around(index, frame)):
            return True
        if frame.function in functions.split(", "):
            return any(_loops_around(index, each) for each in stack[number + 1 :])
    return False


def _loops_around(index: Index, frame: Frame) -> list[Statement]:
    line = source_of(index, frame)
    within = line.within if line is not None else ()
    return [each for each in within if each.text.startswith(("while ", "for "))]


class LikelyKiller(Struct, frozen=True):
    """A process of the job that may have sent SIGKILL, as its source and its stacks show."""

    process: str
    """With its thread, in words."""
    line: str
    place: str
    """`pool.py:78 end`."""
    under: str
    """The condition for it; empty for none."""
    mark: Mark


def likely_killer(index: Index, ended: Ended) -> LikelyKiller | None:
    """Which process of the job is in a loop that sends SIGKILL, where it is only one."""
    if ended.signal != Signals.SIGKILL:
        return None
    kills = marks(index, "kills")
    found = [
        (process, thread, mark)
        for process in index.snapshot.living()
        for thread in process.threads
        for mark in kills
        if _leads_to(index, list(own_frames(thread.stack)), mark)
    ]
    if len({(process.process, mark) for process, _, mark in found}) != 1:
        return None
    process, thread, mark = found[0]
    by = "" if thread.tid == process.pid else f", in its thread {thread.name},"
    words = mark_words(mark)
    place = words.rpartition(" at ")[2]
    return LikelyKiller(f"{called(process)}{by}", words, place, _under(mark), mark)


def _under(mark: Mark) -> str:
    """The condition for a kill; empty for none."""
    _, _, condition = mark.about.split("; ", 2)
    return f", under `{condition.replace(' in line', '` in line')}" if condition else ""


def group_kill(index: Index, process: Process, ended: Ended) -> Mark | None:
    """The statement by which a process may have ended itself, with the rest of its group."""
    thread = main_thread(process)
    was_at = functions_of(own_frames(thread.stack)) if thread is not None else frozenset()
    for mark in marks(index, "kills-group"):
        is_it = ended.signal is not None and mark.about.partition(",")[0] == _name_of(ended.signal)
        if is_it and (mark.file, mark.function) in was_at:
            return mark
    return None


FOR_ALL = frozenset((Signals.SIGUSR1, Signals.SIGUSR2, Signals.SIGHUP))
"""Sent to all processes of a job at once, and without a handler the end of a process."""
HANDLING = 3
_HANDLE = (
    "handle or ignore that signal, and go on; the one that ended did not",
    "handles or ignores that signal, and goes on; the one that ended did not",
)


def handling_words(index: Index, process: Process, ended: Ended) -> str:
    """The living processes that such a signal does not end, as evidence; empty without any."""
    if ended.signal not in FOR_ALL:
        return ""
    bit = 1 << (ended.signal - 1)
    found = [
        each
        for each in index.snapshot.living()
        if each.process != process.process
        and ((each.sample.signals_caught or 0) | (each.sample.signals_ignored or 0)) & bit
    ]
    return f"{all_called(found, HANDLING)} {_HANDLE[len(found) == 1]}" if found else ""


def sent_by(index: Index, ended: Ended) -> Mark | None:
    """The statement of the program that sends such a signal, where it is only one."""
    if ended.signal not in FOR_ALL:
        return None
    found = [e for e in marks(index, "sends-signal") if e.about == _name_of(ended.signal)]
    return found[0] if len(found) == 1 else None


def cause_of_sending(mark: Mark) -> str:
    """What a statement of the program that sends a signal means for the process that it ended."""
    return (
        f"Most likely it was sent by {mark_words(mark)}, which asks no process whether it handles "
        "that signal. "
    )


def _name_of(number: int) -> str:
    return Signals(number).name if number in set(Signals) else ""


def _cause_of_group(mark: Mark) -> str:
    signal, _, line = mark.about.partition(", ")
    return (
        f"Most likely {mark_words(mark)} ended it: that sends {signal} to the whole process group "
        f"of the program that line {line} starts. Nothing in that file gives this program a group "
        "or a session of its own, so it is in the group of the process that starts it: the call "
        f"ends its own process, and all others of that group. {_STAYS_LOCKED}"
    )


_ADVICE_GROUP = (
    "Start that program in a group of its own (start_new_session=True, or process_group=0 from "
    "Python 3.11), or end only the program itself (its kill()). Starting the ended process again "
    "does not help: it ends itself at the next such program."
)


def _briefly(snapshot: Snapshot, process: Process) -> str:
    """The exception that has ended a process, for a summary; empty where it is not known."""
    entry = last_exception(snapshot, process)
    if entry is None or entry.kind != "exception" or process.ended is None:
        return ""
    place = place_of(entry.details)
    is_likely = entry.details.get("is_certain", True) is False
    if death_of(process.ended) != "failed" or place is None:
        return ""
    name = f"{entry.details['name']} " if "name" in entry.details else ""
    return f", {'most likely ' if is_likely else ''}{name}by {entry.details.get('type')} at {place}"


def _cause(index: Index, process: Process, ended: Ended) -> str:
    """What such an exit means, as far as it was observed."""
    death = death_of(ended)
    if death == "failed":
        general = _FAILED_LOADING if process.role == "loader-worker" else _FAILED
        return (
            _why_raised(index, process)
            or _by_exception(index.snapshot, process)
            or _by_watchdog(index, process, ended)
            or general
        )
    if ended.signal is None or death != "killed":
        return _QUIET
    if ended.signal == Signals.SIGKILL and cpu_limit_evidence(index, process):
        return f"{processes.CPU_LIMIT.cause} {_STAYS_LOCKED}"
    cause = processes.signal_meaning(ended.signal).cause
    if (killer := likely_killer(index, ended)) is not None:
        return (
            f"Most likely {killer.process} ended it: {killer.line} sends that signal"
            f"{killer.under}. Otherwise: {cause} {_STAYS_LOCKED}"
        )
    is_lost = _lost_a_thread(index, process, ended)
    if (asks := death_signal(index, process, ended)) is not None:
        seen = "A thread of its parent ended at the same time. " if is_lost else ""
        return (
            f"{'Most likely' if is_lost else 'Possible'}: {mark_words(asks)} asks the kernel for a "
            "signal at the end of the parent (prctl PR_SET_PDEATHSIG). The parent is the thread "
            "that has started the process: when that thread ends, the process is killed, though "
            f"the other threads of the parent live. {seen}Otherwise: {cause} {_STAYS_LOCKED}"
        )
    if ended.signal == Signals.SIGKILL and is_lost and not index.snapshot.source:
        cause = f"{_PARENT_THREAD} {cause}"
    return f"{cause} {_STAYS_LOCKED}"


def _by_exception(snapshot: Snapshot, process: Process) -> str:
    """Which exception has ended a process; empty where that is not known."""
    entry = last_exception(snapshot, process)
    if entry is None or entry.kind != "exception":
        return ""
    place = place_of(entry.details)
    what = f"{entry.details.get('type')}{f' at {place}' if place else ''}"
    if (left_at := _left_in_handler(snapshot, process, entry)) is not None:
        return f"The program has caught {what}, and ended the process at {left_at}. {_ALONE}"
    if entry.details.get("is_certain", True):
        return f"An uncaught {what} ended it. {_ALONE}"
    log = str(entry.details.get("log")).rpartition("/")[2]
    return f"Most likely {what} ended it, whose traceback is in {log}. {_ALONE}"


class _Watchdog(Struct, frozen=True):
    """What `Mark.about` says of a watchdog."""

    mark: Mark
    after: str
    to: str
    """What it writes the stacks to, as written; empty for standard error."""
    left: str
    """As of "alarm": the lines that leave its function before it is cancelled."""

    @property
    def is_left(self) -> bool:
        """Whether a `return` leaves it armed, and not only an exception could."""
        return bool(self.left) and not self.left.startswith(RAISE_OF)


def _watchdog(index: Index, process: Process, ended: Ended) -> _Watchdog | None:
    """The watchdog of faulthandler, or the timer, that may have ended a process.

    It calls _exit(1) in a thread of its own, so that no exception is raised and no handler runs.
    """
    if last_exception(index.snapshot, process) is not None:
        return None
    found = []
    for mark in marks(index, "exits-late"):
        after, code, to, left = mark.about.rsplit("; ", 3)
        if ended.exit_code is not None and code == str(ended.exit_code):
            found.append(_Watchdog(mark, after, to, left))
    return found[0] if len(found) == 1 else None


def _watchdog_words(index: Index, process: Process, ended: Ended) -> str:
    found = _watchdog(index, process, ended)
    return "" if found is None else f", most likely by its own watchdog at {mark_place(found.mark)}"


def _by_watchdog(index: Index, process: Process, ended: Ended) -> str:
    """That its own watchdog has ended it; empty where the program has none."""
    found = _watchdog(index, process, ended)
    if found is None:
        return ""
    mark, after = found.mark, f" after {found.after}" if found.after else ""
    file = mark.file.rpartition("/")[2]
    writes = (
        "It writes nothing,"
        if found.to == "nothing"
        else f"It writes 'Timeout' and the stacks to what is given there as file={found.to} first, "
        "and not to standard error,"
        if found.to
        else "It writes 'Timeout' and the stacks to standard error first,"
    )
    left = ""
    if found.is_left:
        left = (
            f" {mark.function} cancels it, but returns at {file}:{found.left} before that: then it "
            "stays armed, and ends the process later, whatever that does by then."
        )
    elif found.left:
        left = (
            f" {mark.function} cancels it only after line {found.left.partition(RAISE_OF)[2]}: an "
            "exception in between, also one that its caller catches, leaves it armed."
        )
    return (
        f"Most likely its own watchdog: {mark_words(mark)} ends the process{after} with exit code "
        f"{ended.exit_code}, without an exception, unless it is armed again or cancelled before."
        f"{left} {writes} and does not know whether the process makes progress. "
        f"Otherwise: {_FAILED}"
    )


def _watchdog_advice(found: _Watchdog) -> str:
    if not found.left:
        return _ADVICE_WATCHDOG
    return (
        f"Cancel the watchdog on every way out of {found.mark.function}(): in a `finally` clause "
        "around the guarded work, or in a context manager. A longer limit or a new start of the "
        "process does not help: it ends in the same way, later. It is no lack of memory and no "
        "crash in native code."
    )


_ADVICE_WATCHDOG = (
    "Arm the watchdog again in each round of the loop that makes progress "
    "(faulthandler.dump_traceback_later() restarts its timer), cancel it with "
    "cancel_dump_traceback_later() when the work is done, or give it the time of the longest work."
)


def _left_in_handler(snapshot: Snapshot, process: Process, raised: LogEntry) -> str | None:
    """The line of the program that called `sys.exit` where an exception had been caught.

    A wrapper of a library (`torch.multiprocessing.spawn`) does so as well, at no line of the
    program.
    """
    exits = [
        entry
        for entry in snapshot.log
        if entry.process == process.process
        and entry.kind == "exit"
        and entry.details.get("how") == SystemExit.__name__
    ]
    return place_of(exits[-1].details) if exits and exits[-1].at_s >= raised.at_s else None


def _why_raised(index: Index, process: Process) -> str:
    """With which exception a failure began, where the one that is told was raised after another.

    Empty where that is not known.
    """
    entry = last_exception(index.snapshot, process)
    first = first_of(entry) if entry is not None else None
    if entry is not None and first is not None:
        last, at = entry.details.get("type"), f" at {first.place}" if first.place else ""
        how = "was raised from it" if first.is_from else "was raised while it was handled"
        it = "It" if entry.details.get("is_certain", True) else "Most likely it"
        return (
            f"{it} began with {first.type}{at}; the {last} that ended the process {how}. {_ALONE}"
        )
    given_up = _gives_up(index, process, entry)
    if given_up is None:
        return ""
    sure = "It" if entry is not None else "Likely it" if last_seen(process) else "Possible: it"
    return (
        f"{sure} ended by {mark_words(given_up)}, which comes after a loop that has failed in all "
        f"its rounds: the exceptions that matter were caught by {given_up.about}, and Python keeps "
        f"no link to them. {_ALONE}"
    )


def _gives_up(index: Index, process: Process, entry: LogEntry | None) -> Mark | None:
    """The `raise` after a loop of attempts by which a process has failed.

    By the line of its exception; without one, the only such statement of the program, unless its
    last stack was in other functions.
    """
    found = marks(index, "gives-up")
    if entry is not None:
        place = place_of(entry.details) or ""
        return next((each for each in found if place == mark_place(each)), None)
    thread = main_thread(process)
    stack = own_frames(thread.stack) if thread is not None else ()
    inside = functions_of(stack)
    if process.ended is None or process.ended.exit_code != 1:
        return None
    if len(found) != 1 or (inside and (found[0].file, found[0].function) not in inside):
        return None
    return found[0]


def death_signal(index: Index, process: Process, ended: Ended) -> Mark | None:
    """What asks for a signal at the end of the parent, in the source of a job whose parent lives.

    Only of a process that a signal has ended, and where one statement of the source does so.
    """
    head = family_head(index, process)
    found = marks(index, "death-signal")
    if ended.signal is None or head is None or head.is_gone or len(found) != 1:
        return None
    return found[0]


def _lost_a_thread(index: Index, process: Process, ended: Ended) -> bool:
    """Whether a thread of its parent, which still runs, ended at about the time of the exit."""
    head = family_head(index, process)
    if head is None or head.is_gone:
        return False
    near_s = ended.at_s - TOGETHER_S, ended.at_s + TOGETHER_S
    return any(
        later.value < before.value and near_s[0] <= later.at_s <= near_s[1]
        for metric in ("few_threads", "threads")
        for before, later in pairwise(index.history.of(head.process, metric))
    )


def raised_words(snapshot: Snapshot, process: Process) -> tuple[str, ...]:
    """The last exception that the hook reported, else an explicit exit, with the line.

    A launcher's wrapper may turn an exception into `SystemExit`, which is the later of the two.
    """
    entry = last_exception(snapshot, process)
    return evidence_of(entry) if entry is not None else ()


def last_exception(snapshot: Snapshot, process: Process) -> LogEntry | None:
    """The note of the last exception of a process, else of its explicit exit."""
    own = [entry for entry in snapshot.log if entry.process == process.process]
    exceptions = [entry for entry in own if entry.kind == "exception"] or [
        entry for entry in own if entry.kind == "exit" and entry.details.get("how")
    ]
    return exceptions[-1] if exceptions else None


def _advice(index: Index, process: Process, ended: Ended, *, raised: Sequence[str]) -> str:
    """The fix for this kind of exit."""
    if ended.signal is not None and death_of(ended) == "killed":
        if ended.signal == Signals.SIGKILL and cpu_limit_evidence(index, process):
            return processes.CPU_LIMIT.advice
        is_lost = ended.signal == Signals.SIGKILL and _lost_a_thread(index, process, ended)
        if (is_lost and not index.snapshot.source) or death_signal(
            index, process, ended
        ) is not None:
            return _ADVICE_PARENT_THREAD
        return processes.signal_meaning(ended.signal).advice
    entry = last_exception(index.snapshot, process)
    if entry is not None and gives(entry, "file-cut-short"):
        return _ADVICE_CUT_FILE
    if entry is None and (watchdog := _watchdog(index, process, ended)) is not None:
        return _watchdog_advice(watchdog) + _checks(index, process)
    first = first_of(entry) if entry is not None else None
    given_up = _gives_up(index, process, entry) if death_of(ended) == "failed" else None
    if given_up is not None and first is None:
        before = "" if entry is not None else "Read its standard error. If it ended at that line: "
        return (
            f"{before}Find the exception that was caught, in the log if the clause writes it down, "
            f"and fix what raises it: more attempts do not help. Keep it for the last one: {_KEPT}."
            + _checks(index, process)
        )
    if raised:
        at = "at the line shown" if any(".py:" in each for each in raised) else "that raises it"
        at = f"at {first.place}" if first is not None and first.place else at
        return (
            f"Fix the code {at}. Catch expected exceptions in the worker itself; a library that "
            f"calls sys.exit or os._exit ends the whole process.{_checks(index, process)}"
        )
    advice = _ADVICE if process.role == "loader-worker" else _ADVICE_OTHERS
    # A hook that has reported no exception would not have done so on another run.
    return advice if process.hook.state == "absent" else advice.replace(_OR_ATTACH, ". ")


def _checks(index: Index, process: Process) -> str:
    """What to let its parent do, where no pool, loader or launcher reads its exit status."""
    parent = index.snapshot.get(process.original_parent)
    is_watched = process.role in ("loader-worker", "pool-worker", "rank")
    return PARENT_CHECKS if parent is not None and not parent.is_gone and not is_watched else ""


_KEPT = "last = error in the except clause, then raise ... from last"
_ADVICE_CUT_FILE = (
    "Look at the file rather than at the code: most likely it is shorter than its own header says, "
    "because what wrote or copied it was interrupted, or still writes. Find which (log the path "
    "before it is read), delete it and write it anew. Write to a temporary name and rename it with "
    "os.replace() once it is complete: a check that a file exists also finds half of one. Where "
    "the program says how much there is to map (numpy.memmap with a shape), compare that with the "
    "size of the file."
)
_QUIET = (
    "It exited without an error while its parent still needed it: os._exit or sys.exit in "
    "dataset code, or a forked child shut down the whole set of workers. The parent notices at "
    "its next check, up to 5 s later."
)
_FAILED_LOADING = (
    "An exception outside the fetching of a sample: while unpickling the dataset in a spawned "
    "worker, in worker_init_fn or in an import, whose traceback is on the worker's standard "
    "error, not in the error that main raises; or a call of sys.exit or os._exit."
)
_FAILED = (
    "An uncaught exception in that process, whose traceback is then on its standard error, or a "
    "call of sys.exit or os._exit, which leaves none. Processes that wait for it are not notified."
)
_ALONE = "Processes that wait for this one are not notified."
_STAYS_LOCKED = (
    "A lock or queue of multiprocessing that it held at that moment stays locked for ever."
)
_PARENT_THREAD = (
    "A thread of its parent ended at the same time. If the process has asked for a signal at its "
    "parent's end (prctl PR_SET_PDEATHSIG), the kernel sends it when the thread that started the "
    "process ends, though the parent lives."
)
_ADVICE_PARENT_THREAD = (
    "Start such processes from the main thread, or keep the thread that starts them alive as long "
    "as they are needed; or let them notice the end of their parent in another way (os.getppid(), "
    "the end of a pipe). If they ask for no such signal: search the kernel log (dmesg) for 'Out of "
    "memory', and the scheduler's log."
)
PARENT_CHECKS = (
    " Its parent is not told: let it check is_alive() or exitcode where it waits for what this "
    "process sends."
)
_OR_ATTACH = ", or attach the hook: the last exception is then shown here. "
ADVICE_SENDER = (
    "Nothing is wrong if that was intended and no other process waits for a lock, a queue or a "
    "result of the ended one. Otherwise ask it to end by an Event or a message that it checks "
    "outside of every lock, join it with a time limit, and send a signal only after that: neither "
    "kill() nor terminate() lets it release what it holds."
)
_ADVICE = (
    f"Read the worker's standard error{_OR_ATTACH}"
    "num_workers=0 raises the error in main with its full traceback, but is slow."
)
_ADVICE_OTHERS = (
    f"Read its standard error{_OR_ATTACH}A parent "
    "sees such an exit only in exitcode: check it, or use concurrent.futures or "
    "torch.multiprocessing.spawn, which raise an error in the parent."
)
