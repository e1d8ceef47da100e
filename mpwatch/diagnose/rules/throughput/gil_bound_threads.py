"""Python threads of one process that get one core together, because of the GIL.

Several that all compute, or one that computes all the time, for which another one waits.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter

from msgspec import Struct

from mpwatch.describe.frames import frame_words
from mpwatch.diagnose.analysis.idle_time import mean_cpu_percent
from mpwatch.diagnose.analysis.index import Index, derived
from mpwatch.diagnose.analysis.process_queries import called, counted, is_manager
from mpwatch.diagnose.analysis.source.lines import line_at
from mpwatch.diagnose.analysis.stack_patterns import user_frame
from mpwatch.diagnose.analysis.throughput.shares import OBSERVED_S, READINGS
from mpwatch.model.account import RUNNING_KINDS, Activity, Share, ThreadAccount
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
        if _run_python(threads) or not (
            is_seen or _is_machine_full(index.snapshot, process, mean, cpus)
        ):
            yield _finding(process, threads, mean, cpus)


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
    held_up_at: str
    """Where that is mostly; empty where no stack shows it."""


def _holds_up(index: Index, process: Process) -> _Holder | None:
    """The one thread of the program that computes while another waits for the GIL."""
    account = index.snapshot.account.processes.get(process.process)
    if account is None or not any(map(_may_wait_for_gil, account.uncounted)):
        return None
    of_program = {t.tid for t in process.threads if _is_of_program(index, t.stack)}
    waiting, computing = [], []
    for number, each in enumerate(account.uncounted):
        tally = account.thread(number).last_minute()
        if tally.readings < READINGS or tally.observed_s < OBSERVED_S:
            continue
        found = tally.shares()
        in_gil = [share for share in found if share.activity.target == "gil"]
        ready = [
            share
            for share in found
            if share.activity.kind in RUNNING_KINDS or share.activity.target == "core"
        ]
        waited, share = sum(s.share for s in in_gil), sum(s.share for s in ready)
        if waited >= HELD_UP and share < TAKES and each.tid in of_program:
            parts = _parts(in_gil)
            at = max(parts.items(), key=itemgetter(1))[0] if parts else ""
            waiting.append((waited, each, at))
        if share >= TAKES and each.tid in of_program:
            places = _parts(ready)
            most = max(places.items(), key=itemgetter(1))[0] if places else ""
            computing.append((share, each, most, places))
    if not waiting or len(computing) != 1:
        return None
    waited, held_up, at = max(waiting, key=itemgetter(0))
    share, takes, place, places = computing[0]
    return _Holder(takes, share, place, places, held_up, waited, at) if place else None


def _may_wait_for_gil(thread: ThreadAccount) -> bool:
    """Whether a thread waited for the GIL lately: most never do, which is found at little cost."""
    lately = thread.buckets[-1].tally.seen if thread.buckets else {}
    return thread.now.target == "gil" or any(each.target == "gil" for each in lately)


def _parts(found: Sequence[Share]) -> Mapping[str, float]:
    """The part of some shares at each line of the program that a stack has shown."""
    places: defaultdict[str, float] = defaultdict(float)
    for each in found:
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
    return Finding(
        rule=RULE,
        severity=Severity.INFO,
        process=process.process,
        subject="gil",
        summary=(
            f"{taker} of {name} {does} at {found.place}, and "
            f"{waiter} waits for the GIL {found.waited:.0%} of the time"
        ),
        evidence=(
            f"{taker}: {found.share:.0%} computing, or ready to",
            f"{waiter}: {found.waited:.0%} waiting for the GIL{at}",
        ),
        cause=(
            "Python's global interpreter lock (GIL) lets one thread run Python code at a time. "
            "Each call that releases it (a torch operator, a read) has to get it back, and a "
            "thread that computes in Python gives it up only every 5 ms "
            "(sys.getswitchinterval()): many short calls get much slower, without a core being "
            "short."
            + (
                f" The loop around {found.place} does not wait for work: it runs at full speed "
                "also when there is nothing to do."
                if is_polling
                else ""
            )
        ),
        advice=(
            "Let the loop wait in the call that looks for work (get() with a timeout, "
            "Event.wait()) whenever it has nothing else to do. More threads do not help, and a "
            "shorter switch interval only softens it."
            if is_polling
            else "Move the loop into a process of its own, or into native code that releases the "
            "GIL; if the loop has nothing to do at times, let it wait then. More threads do not "
            "help."
        ),
    )


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
