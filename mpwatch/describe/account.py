"""The account of time in words: what a process or thread did, and how sure that is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from mpwatch.describe.frames import frame_words, is_library
from mpwatch.describe.processes import ROLE_PLURALS, joined_names, unique_names
from mpwatch.model.account import (
    IMPORTS,
    LAST_MINUTE_S,
    TRANSFERS,
    Activity,
    ActivityKind,
    Callers,
    ProcessAccount,
    Share,
    Tally,
    together,
)
from mpwatch.model.ids import ProcessId, Role
from mpwatch.model.progress import BUCKET_S
from mpwatch.model.snapshot import Snapshot
from mpwatch.model.units import seconds_text

SHOWN = 3
"""Activities named in a sentence."""
PLACES_SHOWN = 2
MOSTLY = 0.8
"""A place with this part of an activity is shown for all of it."""
KNOWN = 0.3
"""Places are named where stacks show at least this part of an activity."""
LEAST_STACKS = 5
"""With fewer stacks, what they have in common says little."""
LEAST_SHARE = 0.02
"""A smaller share is summed with others."""
TOGETHER = 7
"""From this many processes of one role on, they are described together."""
NO_ACCOUNT = "No process was observed, so there is no account of its time."
CORE_SHARE = 0.1
"""Cpu time of threads other than the main one that is mentioned, as a share of a core."""

_OF_QUEUES = ("pipe", "lock")
"""Of what a wait is in system calls, while its stack says that it is for a queue."""
_VERBS: Mapping[ActivityKind, str] = {
    "computing": "computing",
    "spinning": "polling without pause",
    "waiting": "waiting",
    "idle": "idle",
    "sleeping": "sleeping",
    "stopped": "stopped",
    "unknown": "unknown",
}


def activity_words(activity: Activity, names: Mapping[ProcessId, str]) -> str:
    """An activity in words, without its place: `waiting for batches from worker 2`.

    Args:
        activity: What a thread does.
        names: From `mpwatch.describe.processes.unique_names`.
    """
    if activity.target == "gpu":
        return "waiting for the GPU"
    verb, what = _VERBS[activity.kind], activity.what
    if not what:
        return verb
    match activity.kind:
        case "computing" | "spinning":
            return what if what in TRANSFERS else f"{verb} in {what}"
        case "waiting":
            providers = joined_names(activity.providers, names)
            if activity.target == "child" and providers:
                return f"waiting for the exit of {providers}"
            if what == IMPORTS:
                return "waiting for a disk in imports"
            return f"waiting for {what}" + (f" from {providers}" if providers else "")
        case "idle":
            return f"idle (waits for {what})"
        case "sleeping" | "stopped":
            return f"{verb} {what}"
    return f"unknown ({what})"


def share_text(share: float) -> str:
    """A share as whole percent: `71%`; `<1%` if it is smaller than that."""
    percent = round(100 * share)
    return "<1%" if percent == 0 and share > 0 else f"{percent}%"


class Part(Struct, frozen=True):
    """One activity at all its places."""

    activity: Activity
    """Without a place."""
    share: float
    places: tuple[tuple[str, float], ...]
    """Lines of the program with their shares of the whole time, the largest first."""

    def words(self, names: Mapping[ProcessId, str]) -> str:
        """`waiting for batches`, `computing, mostly at a.py:5 f`, or with several places."""
        words = activity_words(self.activity, names)
        known = sum(share for _, share in self.places)
        if known < KNOWN * self.share or not known:
            return words
        place, share = self.places[0]
        if share >= MOSTLY * known:
            return (
                f"{words} at {place}"
                if share >= MOSTLY * self.share
                else (f"{words}, mostly at {place}")
            )
        shown = [f"{share_text(each)} at {where}" for where, each in self.places[:PLACES_SHOWN]]
        return f"{words} ({', '.join(shown)})"


def parts_of(shares: Sequence[Share]) -> list[Part]:
    """The shares without places, the largest first; each with those of its places.

    Python and native code are one activity, named after the one that most stacks show. To pass
    objects to other processes is another one.
    """
    found: dict[Activity, list[Share]] = {}
    queues: dict[str, Activity | None] = {}
    for each in shares:
        if each.activity.target == "queue" and each.activity.place:
            key = each.activity._replace(place="")
            known = queues.setdefault(each.activity.place, key)
            queues[each.activity.place] = key if known == key else None  # `put(get())` in one line
    for each in shares:
        key = each.activity._replace(place="")
        if key.kind == "waiting" and key.target in _OF_QUEUES:
            # A reading without a new stack shows the pipe or semaphore of the queue.
            key = queues.get(each.activity.place) or key
        if key.kind == "computing" and key.what not in TRANSFERS:
            key = key._replace(what="")
        found.setdefault(key, []).append(each)
    parts = [_part(activity, alike) for activity, alike in found.items()]
    return sorted(parts, key=lambda part: -part.share)


def _part(activity: Activity, alike: Sequence[Share]) -> Part:
    total = sum(each.share for each in alike)
    places = _sums((each.activity.place, each.share) for each in alike)
    codes = _sums((each.activity.what, each.share) for each in alike)
    if activity.kind == "computing" and codes and codes[0][1] >= MOSTLY * total:
        activity = activity._replace(what=codes[0][0])
    return Part(activity, total, places)


def _sums(pairs: Iterable[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
    """The sum of the shares of each name that is not empty, the largest first."""
    found: dict[str, float] = {}
    for name, share in pairs:
        if name:
            found[name] = found.get(name, 0.0) + share
    return tuple(sorted(found.items(), key=lambda item: -item[1]))


def sentence(shares: Sequence[Share], names: Mapping[ProcessId, str]) -> str:
    """The largest shares in one line: `71% waiting for batches, 22% computing, 7% other`.

    Args:
        shares: From `Tally.shares`.
        names: From `mpwatch.describe.processes.unique_names`.
    """
    parts = parts_of(shares)
    if not parts:
        return "not observed yet"
    shown = [part for part in parts[:SHOWN] if part.share >= LEAST_SHARE] or parts[:1]
    # A single further activity takes no more room by its name.
    if len(parts) == len(shown) + 1 and parts[-1].share >= LEAST_SHARE:
        shown = parts
    words = [f"{share_text(part.share)} {part.words(names)}" for part in shown]
    rest = 1 - sum(part.share for part in shown)
    if round(100 * rest) > 0:
        words.append(f"{share_text(rest)} other")
    return ", ".join(words)


def others_words(account: ProcessAccount) -> str:
    """The cpu time of other threads than main in the last minute; empty if it is hardly any.

    That of threads which poll without pause, as far as readings found them at it, is told apart.
    """
    shares = [(each.last_minute(), _spins(each.last_minute())) for each in account.threads[1:]]
    known = [(tally.cpu_s / tally.observed_s, s) for tally, s in shares if tally.observed_s > 0]
    parts = []
    for verb, of_core in (
        ("computed", [share - spins for share, spins in known]),
        ("polled without pause", [spins for _, spins in known]),
    ):
        busy = sum(share >= CORE_SHARE / 2 for share in of_core)
        if busy and sum(of_core) >= CORE_SHARE:
            threads = "another thread" if busy == 1 else f"{busy} other threads"
            parts.append(f"{threads} {verb} for {share_text(sum(of_core))} of a core")
    return "; ".join(parts)


def _spins(tally: Tally) -> float:
    """The share of a core that a thread has used to poll, 0 to 1."""
    return sum(each.share for each in tally.shares() if each.activity.kind == "spinning")


def process_words(account: ProcessAccount, names: Mapping[ProcessId, str]) -> str:
    """The last minute of a process: of its main thread, and the cpu time of others."""
    words = sentence(account.main.last_minute().shares(), names)
    inside = always_inside(account)
    others = others_words(account)
    return "; ".join(each for each in (words, inside and f"always inside {inside}", others) if each)


def always_inside(account: ProcessAccount) -> str:
    """The function that the main thread did not leave, if it computes at several of its lines."""
    thread = account.main
    found = thread.inside()
    if found is None or found.stacks < LEAST_STACKS or account.at_s - found.taken_s > LAST_MINUTE_S:
        return ""
    tally = thread.last_minute()
    if tally.cpu_s < MOSTLY * tally.observed_s or not found.frames or found.frames[-1].line:
        return ""
    own = [frame for frame in found.frames if not is_library(frame)]
    is_all_of_it = len(own) < 2 or own[-2].function == "<module>"
    return "" if is_all_of_it else inside_words(found)


def inside_words(callers: Callers) -> str:
    """The function of the program that all stacks are in: `fit (a.py), called at b.py:9 main`.

    Empty if they only have the program itself in common.
    """
    own = [frame for frame in callers.frames if not is_library(frame)]
    if not own or own[-1].function == "<module>":
        return ""
    last = own[-1]
    name = last.file.rpartition("/")[2]
    words = f"{last.function} ({name}:{last.line})" if last.line else f"{last.function} ({name})"
    return f"{words}, called at {frame_words(own[-2])}" if len(own) > 1 else words


def span_words(tally: Tally) -> str:
    """How long something was observed: `over 60 s`; `in one reading`."""
    if tally.observed_s <= 0:
        return "in one reading"
    return f"over {seconds_text(tally.observed_s)}"


def certainty_words(snapshot: Snapshot) -> str:
    """How long the job was watched, and how exact the shares are; empty without a reading.

    The error is that of the processes that were there all the time.
    """
    account = snapshot.account
    minutes = [each.main.last_minute() for each in account.processes.values() if each.uncounted]
    if not minutes:
        return ""
    readings = round(max(tally.readings for tally in minutes))
    error = min(tally.error for tally in minutes)
    watched = f"Watched for {seconds_text(account.watched_s)}"
    count = f"{readings} reading{'' if readings == 1 else 's'}"
    if readings < 2:
        return (
            f"{watched}, {count}: this is what each main thread did at that moment, not a share"
            " of time."
        )
    span = " in the last minute" if account.watched_s > LAST_MINUTE_S else ""
    words = (
        f"{watched}, {count}{span}. CPU time is exact; a share of waiting may be off by"
        f" {round(100 * error)} percentage points."
    )
    return f"{words} {_stacks_words(snapshot)}".rstrip()


def _stacks_words(snapshot: Snapshot) -> str:
    """From how many processes there are stacks, which show the line of a process."""
    python = [p for p in snapshot.living() if p.sample.is_python]
    if not python:
        return ""
    with_stacks = sum(any(thread.stack for thread in p.threads) for p in python)
    if with_stacks == len(python):
        return "Lines are from stacks."
    if not with_stacks:
        return "Without stacks the lines of the program are unknown."
    return f"Lines are from stacks of {with_stacks} of {len(python)} Python processes."


class AccountRow(Struct, frozen=True):
    """One line of the account: a process, or many of one role together."""

    name: str
    recent: str
    """What was done in the last minute."""
    whole: str
    """What was done in the whole time observed; empty if that is hardly longer."""


def account_rows(snapshot: Snapshot) -> list[AccountRow]:
    """A row for each running process, in the order of the tree; of an ended job for all processes.

    From `TOGETHER` processes of one role on they share a row, with the mean of their shares.
    """
    names = unique_names(snapshot)
    found = [
        (process, account)
        for process in snapshot.living() or snapshot.processes
        if (account := snapshot.account.processes.get(process.process)) is not None
        and account.uncounted
    ]
    counts = Counter(process.role for process, _ in found)
    rows: list[AccountRow] = []
    named: set[Role] = set()
    for process, account in found:
        if process.role not in ROLE_PLURALS or counts[process.role] < TOGETHER:
            rows.append(_row(names[process.process], [account], names))
        elif process.role not in named:
            named.add(process.role)
            alike = [each for other, each in found if other.role == process.role]
            name = f"{len(alike)} {ROLE_PLURALS[process.role]}, on average"
            rows.append(_row(name, alike, names))
    return rows


def _row(
    name: str, accounts: Sequence[ProcessAccount], names: Mapping[ProcessId, str]
) -> AccountRow:
    whole = together(account.main.whole() for account in accounts)
    if len(accounts) == 1:
        recent = process_words(accounts[0], names)
    else:
        minutes = together(account.main.last_minute() for account in accounts)
        recent = sentence(minutes.shares(), names)
    longest_s = max(account.main.whole().observed_s for account in accounts)
    is_longer = longest_s > LAST_MINUTE_S + BUCKET_S
    words = f"{sentence(whole.shares(), names)}; over {seconds_text(longest_s)}"
    return AccountRow(name, recent, words if is_longer else "")
