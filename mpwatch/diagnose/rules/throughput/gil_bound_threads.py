"""Python threads of one process that get one core together, because of the GIL.

Several that all compute, or one that computes all the time, for which another one waits.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter

from msgspec import Struct

from mpwatch.describe.frames import frame_words, program_frames
from mpwatch.diagnose.analysis.idle_time import mean_cpu_percent
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.process_queries import (
    all_called,
    called,
    counted,
    is_manager,
)
from mpwatch.diagnose.analysis.source.lines import is_in_loop, line_at, source_of
from mpwatch.diagnose.analysis.stack_patterns import user_frame
from mpwatch.diagnose.analysis.throughput.shares import (
    OBSERVED_S,
    READINGS,
    can_end_alone,
    shares,
    shares_of_threads,
)
from mpwatch.model.account import (
    IMPORTS,
    RUNNING_KINDS,
    Activity,
    ProcessAccount,
    Share,
    ThreadAccount,
)
from mpwatch.model.findings import Finding, Severity
from mpwatch.model.samples import Frame
from mpwatch.model.snapshot import Process, Snapshot, Thread

RULE = "gil-bound-threads"
IS_OF_SHARES = True
ONE_CORE = (25.0, 125.0)
"""Percent of a core: less is idle, more is parallel. On a busy machine each process gets less."""
FULL_CORE = 75.0
THREADS = 3
WANTS = 0.75
"""The share of its time in which a thread computes, or waits for a core or the GIL."""
SHARE_PERCENT = (5.0, 70.0)
HELD_UP = 0.1
"""The share of its time in which a thread waits for the GIL."""
TAKES = 0.25
"""The share in which the thread that has the GIL computes, or waits for a core."""
HELD_BACK = 0.3
"""The share of its time from which on a thread loses most to the GIL, if it computes less."""
CLIENT_WAITS = 0.5
"""A process waits so much of its time for another one that it gets no further than that one."""
RESTLESS = 0.9
"""The share of its time from which on a thread is said to go on without a pause."""
SHOWN_CLIENTS = 3
SHOWN_LOOPS = 3
ASKING = 0.1
"""A loop that has work spends far less of its time on looking whether there is more."""
RUNNING = 2
"""One thread holds the GIL, another may just have been woken up to take it."""


def check(index: Index) -> Iterator[Finding]:
    """Yield a finding for each process whose several busy threads use one core together.

    With fewer than two usable cpus, sharing a core means nothing. Where stacks of the process are
    known, they have to show that these threads run Python code: those of torch's autograd, of NCCL
    and of CUDA have none. Without stacks it means something only if other cpus are free. The
    threads of a Manager are not the program's: one serves each client, and `bottleneck-process`
    names the processes that ask.
    """
    cpus = index.snapshot.host.usable_cpus or 1
    if cpus < 2:
        return
    for process in index.snapshot.living():
        if is_manager(process):
            continue
        holder = _holds_up(index, process)
        if holder is not None:
            yield _finding_of_holder(index, process, holder)
            continue
        threads = [t for t in process.threads if _takes_turns(t)]
        if len(threads) < THREADS:
            threads, share = _by_account(index, process)
            if len(threads) >= THREADS:
                yield _finding(process, threads, share, cpus)
            continue
        if sum(thread.state == "R" for thread in threads) > RUNNING:
            continue  # several run at once, or would if they got a core
        mean = mean_cpu_percent(process, index.history, over_s=10)
        if mean is None or not ONE_CORE[0] <= mean <= ONE_CORE[1]:
            continue
        total = sum(thread.cpu_percent or 0.0 for thread in threads)
        if total > ONE_CORE[1] or total < 0.7 * mean:
            continue
        is_seen = any(thread.stack for thread in process.threads)
        are_bound = _run_python(threads) or not (
            is_seen or _is_machine_full(index.snapshot, process, mean, cpus)
        )
        if are_bound and not _wait_for_another_lock(index, process, threads):
            yield _finding(process, threads, mean, cpus)


def _wait_for_another_lock(index: Index, process: Process, threads: Sequence[Thread]) -> bool:
    """Whether threads were found waiting for a lock of their process more than for the GIL.

    As those that call one library, which computes for one of them at a time without the GIL.
    """
    of_threads = shares_of_threads(index, process, {each.tid for each in threads})
    found = [share for each in of_threads for share in each]
    in_locks = sum(share for doing, share in found if doing.target == "lock")
    return in_locks > sum(share for doing, share in found if doing.target == "gil")


def _by_account(index: Index, process: Process) -> tuple[list[Thread], float]:
    """Threads that want to run Python code all the time, and their cpu use together, in percent.

    On a loaded machine the process gets less than a core, of which each thread has a small part.
    """
    account = index.snapshot.account.processes.get(process.process)
    of_program = {t.tid: t for t in process.threads if _is_of_program(index, t.stack)}
    if account is None or len(of_program) < THREADS:
        return [], 0.0
    found, cpu_percent = [], 0.0
    for number, each in enumerate(account.uncounted):
        thread = of_program.get(each.tid)
        if thread is None:
            continue
        tally = account.thread(number).last_minute()
        if tally.readings < READINGS or tally.observed_s < OBSERVED_S:
            continue
        wants = sum(share for doing, share in tally.shares() if _wants_to_run(doing))
        if wants >= WANTS:
            found.append(thread)
            cpu_percent += 100 * tally.cpu_s / tally.observed_s
    return (found, cpu_percent) if cpu_percent <= ONE_CORE[1] else ([], 0.0)


class _Holder(Struct, frozen=True):
    """A thread that computes Python code, and the one that waits for the GIL meanwhile."""

    takes: ThreadAccount
    share: float
    """Of its time: computing, or ready to."""
    place: str
    """`server.py:40 _generate`, where most of that is."""
    places: Mapping[str, float]
    """The part of its computing at each line, 0 to 1."""
    waits: ThreadAccount
    waited: float
    """The share of its time in which the other one waits for the GIL."""
    computed: float
    """The share in which that one computes itself."""
    is_restless: bool
    """Whether the first one hardly ever waits for anything but the GIL and a core."""
    held_up_at: str
    """Where it waits mostly; empty where no stack shows it."""


class _GilUse(Struct, frozen=True):
    """What a thread of the program did with the GIL in the last minute, as shares of its time."""

    thread: ThreadAccount
    in_gil: Sequence[Share]
    """Its waits for the GIL."""
    ready: Sequence[Share]
    """Computing, or waiting for a free core."""

    @property
    def waited(self) -> float:
        return sum(each.share for each in self.in_gil)

    @property
    def computed(self) -> float:
        return sum(s.share for s in self.ready if s.activity.kind in RUNNING_KINDS)

    @property
    def wanted(self) -> float:
        """The share in which it computes, or would if it got a core."""
        return sum(each.share for each in self.ready)

    @property
    def in_imports(self) -> float:
        """The part of its computing that is imports, 0 to 1."""
        imports = sum(s.share for s in self.ready if s.activity.what == IMPORTS)
        return imports / self.computed if self.computed else 0.0

    @property
    def is_held_up(self) -> bool:
        """Whether it waits for the GIL and hardly computes.

        Where cores are short it waits for one as well, but less than for the GIL.
        """
        if self.waited < HELD_UP:
            return False
        return self.wanted < TAKES or (self.computed < TAKES and self.waited > self.wanted)

    def is_ahead_of(self, other: _GilUse) -> bool:
        """Whether it gets the GIL when the other one waits: two that take turns wait alike."""
        return other.wanted < TAKES or 2 * self.waited <= other.waited


def _holds_up(index: Index, process: Process) -> _Holder | None:
    """The one thread of the program that computes while another waits for the GIL.

    Not one that imports modules for the most part: that ends by itself.
    """
    account = index.snapshot.account.processes.get(process.process)
    if account is None or not any(map(_may_wait_for_gil, account.uncounted)):
        return None
    of_program = {t.tid for t in process.threads if _is_of_program(index, t.stack)}
    uses = [
        _GilUse(
            each,
            [share for share in found if share.activity.target == "gil"],
            [
                share
                for share in found
                if share.activity.kind in RUNNING_KINDS or share.activity.target == "core"
            ],
        )
        for number, each in enumerate(account.uncounted)
        if each.tid in of_program and (found := _shares_of(account, number))
    ]
    waiting = [each for each in uses if each.is_held_up]
    computing = [each for each in uses if each.wanted >= TAKES and not each.is_held_up]
    if not waiting or len(computing) != 1:
        return None
    held_up, taker = max(waiting, key=lambda each: each.waited), computing[0]
    share = taker.wanted * (1 - taker.in_imports)
    if share < TAKES or not taker.is_ahead_of(held_up):
        return None
    places = _parts(taker.ready)
    if not places:
        return None
    return _Holder(
        takes=taker.thread,
        share=share,
        place=_most(places),
        places=places,
        waits=held_up.thread,
        waited=held_up.waited,
        computed=held_up.computed,
        is_restless=taker.wanted + taker.waited >= RESTLESS,
        held_up_at=_most(_parts(held_up.in_gil)),
    )


def _shares_of(account: ProcessAccount, number: int) -> Sequence[Share]:
    """What a thread did in the last minute; empty where too little was seen."""
    tally = account.thread(number).last_minute()
    is_enough = tally.readings >= READINGS and tally.observed_s >= OBSERVED_S
    return tally.shares() if is_enough else ()


def _most(parts: Mapping[str, float]) -> str:
    return max(parts.items(), key=itemgetter(1))[0] if parts else ""


def _may_wait_for_gil(thread: ThreadAccount) -> bool:
    """Whether a thread waited for the GIL lately: most never do, which is found at little cost."""
    lately = thread.buckets[-1].tally.seen if thread.buckets else {}
    return thread.now.target == "gil" or any(each.target == "gil" for each in lately)


def _parts(found: Sequence[Share]) -> Mapping[str, float]:
    """The part of some shares at each line of the program that a stack has shown, imports aside."""
    places: defaultdict[str, float] = defaultdict(float)
    for each in found:
        if each.activity.what != IMPORTS:
            places[each.activity.place] += each.share
    places.pop("", None)
    total = sum(places.values())
    return {place: share / total for place, share in places.items()}


_ASKS = re.compile(
    r"get_nowait\(|\.empty\(\)|\.qsize\(\)|block=False|\.poll\(\)|\.is_set\(\)|\.done\(\)"
)
"""Calls that look whether there is something to do, and return at once."""


def _finding_of_holder(index: Index, process: Process, found: _Holder) -> Finding:
    """Describe a thread that has the GIL, and whether it only looks again and again."""
    waiter, taker = (
        "the main thread" if each.tid == process.pid else f"thread {each.name}"
        for each in (found.waits, found.takes)
    )
    name = called(process)
    asking = 0.0
    for place, part in found.places.items():
        line = line_at(index, place)
        if line is not None and _ASKS.search(line.statement.text):
            asking += part
    is_polling = asking >= ASKING
    does = "asks again and again whether there is something to do" if is_polling else "computes"
    at = f", mostly at {found.held_up_at}" if found.held_up_at else ""
    clients = _clients(index, process, found)
    them = all_called([each for each, _ in clients], SHOWN_CLIENTS)
    least, most = (f"{end([s for _, s in clients], default=0):.0%}" for end in (min, max))
    of_time = least if least == most else f"{least} to {most}"
    wait, their = ("wait", "their") if len(clients) > 1 else ("waits", "its")
    endless, loops = _loops(index, process, found)
    return Finding(
        rule=RULE,
        severity=Severity.WARNING if clients else Severity.INFO,
        process=process.process,
        subject="gil",
        summary=(
            f"{taker} of {name} {does} at {found.place}, and "
            f"{waiter} waits for the GIL {found.waited:.0%} of the time"
            + (f"; {them} {wait} for that process {of_time} of {their} time" if clients else "")
        ),
        evidence=(
            f"{taker}: {found.share:.0%} computing, or ready to",
            *([f"{taker} is {loops}"] if loops else ()),
            f"{waiter}: {found.waited:.0%} waiting for the GIL{at}",
            *(f"{called(e)}: {s:.0%} waiting for {name}" for e, s in clients[:SHOWN_CLIENTS]),
        ),
        cause=_cause(found, waiter, endless, is_polling=is_polling, has_clients=bool(clients)),
        advice=(
            "Let the loop wait in the call that looks for work (get() with a timeout, "
            "Event.wait()) whenever it has nothing else to do. More threads do not help, and a "
            "shorter switch interval only softens it."
            if is_polling
            else "Move the loop into a process of its own, or into native code that releases the "
            "GIL; or run it rarely: if it has nothing to do at times, let it wait then. More "
            "threads do not help"
            + (", nor do more processes that wait for this one." if clients else ".")
        ),
    )


def _cause(
    found: _Holder, waiter: str, endless: str, *, is_polling: bool, has_clients: bool
) -> str:
    """Why the GIL slows the process down, whether the loop ever pauses, and whom it holds up."""
    text = (
        "Python's global interpreter lock (GIL) lets one thread run Python code at a time. Each "
        "call that releases it (a torch operator, a read) has to get it back, and a thread that "
        "computes in Python gives it up only every 5 ms (sys.getswitchinterval()): many short "
        "calls get much slower, without a core being short."
    )
    if is_polling:
        text += (
            f" The loop around {found.place} does not wait for work: it runs at full speed also "
            "when there is nothing to do."
        )
    elif endless and found.is_restless:
        text += (
            f" As far as its statements show, {endless} has no wait in it: one round follows the "
            "other without a pause."
        )
    if has_clients:
        text += (
            f" The processes that wait for this one get an answer only once {waiter} has the GIL "
            "again, often several times for each: that sets their pace."
        )
    return text


def _clients(index: Index, process: Process, found: _Holder) -> Sequence[tuple[Process, float]]:
    """The processes that get no further than a thread which the GIL holds up, with their waits.

    None where that is not its main thread, or the GIL is not what takes most of its time. Those
    that it has started are idle by design while it computes.
    """
    if found.waits.tid != process.pid or found.waited < max(HELD_BACK, found.computed):
        return ()
    clients = []
    for each in index.snapshot.living():
        if each.process == process.process or each.sample.parent_pid == process.pid:
            continue
        waited = sum(
            share.share
            for share in shares(index, each)
            if share.activity.kind == "waiting"
            and can_end_alone(index, process, share.activity.providers)
        )
        if waited >= CLIENT_WAITS:
            clients.append((each, waited))
    return clients


def _loops(index: Index, process: Process, found: _Holder) -> tuple[str, str]:
    """The loops that a computing thread is in, as words; empty where no stack shows them.

    Returns:
        The loop without an end, if it has no wait in it, and the loops of the innermost function
        that has one, innermost first.
    """
    thread = next((each for each in process.threads if each.tid == found.takes.tid), None)
    frames = program_frames(thread.stack) if thread is not None else []
    for frame in frames:
        line = source_of(index, frame)
        headers = [line.statement, *line.within[::-1]] if line is not None else []
        loops = [each for each in headers if is_in_loop([each])]
        if line is None or not loops:
            continue
        name = frame.file.rpartition("/")[2]
        quotes = [f"`{each.text}` ({name}:{each.line} {frame.function})" for each in loops]
        endless = line.endless
        is_busy = endless is not None and not endless.exchanges
        header = f"`{endless.header.text}` ({name}:{endless.header.line})" if endless else ""
        words = f"in {', in '.join(quotes[:SHOWN_LOOPS])}"
        return header if is_busy else "", words
    return "", ""


@derived
def _is_of_program(index: Index, stack: tuple[Frame, ...]) -> bool:
    """Whether a stack has a frame of the user's code; workers have equal ones."""
    del index
    return user_frame(stack) is not None


def _wants_to_run(doing: Activity) -> bool:
    return doing.kind == "computing" or doing.target in ("core", "gil")


def _takes_turns(thread: Thread) -> bool:
    """Whether a thread gets part of a core and does not sleep, so that it would use more."""
    load = thread.cpu_percent
    if thread.waits_on is not None and thread.waits_on.kind == "timer":
        return False
    return load is not None and SHARE_PERCENT[0] <= load <= SHARE_PERCENT[1]


def _run_python(threads: list[Thread]) -> bool:
    """Whether stacks show that these threads run the user's Python code, not native pools."""
    return sum(user_frame(thread.stack) is not None for thread in threads) >= THREADS


def _is_machine_full(snapshot: Snapshot, process: Process, mean: float, cpus: int) -> bool:
    """Whether other processes use the remaining cpus, so that nothing could run in parallel."""
    others = sum(p.cpu_percent or 0.0 for p in snapshot.living() if p.process != process.process)
    return mean < FULL_CORE or others >= 100.0 * (cpus - 1.2)


def _finding(process: Process, threads: list[Thread], mean: float, cpus: int) -> Finding:
    """Describe the threads."""
    loads = sorted({f"{thread.cpu_percent or 0:.0f}" for thread in threads}, key=int)
    evidence = [
        f"{len(threads)} threads with {' to '.join((loads[0], *loads[1:][-1:]))}% each, together "
        f"no more than one core of {cpus}",
        f"{called(process)} used {mean:.0f}% cpu lately",
    ]
    places = Counter(
        frame_words(frame) for t in threads if (frame := user_frame(t.stack)) is not None
    )
    evidence += [f"{counted(n, 'thread')} at {place}" for place, n in places.most_common(3)]
    place, most = next(iter(places.most_common(1)), ("", 0))
    at = f", most of them at {place}" if 2 * most > len(threads) else ""
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=process.process,
        summary=(
            f"{len(threads)} threads of {called(process)} share one core, so that one runs at a "
            f"time{at}"
        ),
        evidence=tuple(evidence),
        cause=(
            "Python's global interpreter lock (GIL) lets one thread run Python code at a time. "
            "Code that is mostly Python (unpickling, many small objects, preprocessing) does not "
            "get faster with threads. Large torch operators release the lock and run in parallel."
            + (" The thread that feeds the GPU needs the same lock." if process.gpus else "")
        ),
        advice=(
            "Use processes instead of threads (each has its own memory, and data between them is "
            "copied or shared), or move the loop into native code. Using fewer threads costs no "
            "speed."
        ),
    )
