"""The lines at which processes ask a server, such as a Manager, and how often."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from mpwatch.describe.frames import frame_words, is_library
from mpwatch.diagnose.analysis.index import Index
from mpwatch.diagnose.analysis.shares import WATCHED_S, shares
from mpwatch.diagnose.analysis.stack_patterns import calls
from mpwatch.model.account import LAST_MINUTE_S, TRANSFERS
from mpwatch.model.history import first_at
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Process

ASKED_SHARE = 0.15
"""A line is named if asking there takes this part of a process' time."""
ASKED_SHOWN = 3
SWITCHES_PER_SAMPLE = 8
"""Switches that taking a stack by py-spy causes, 5 to 10."""
READS = frozenset(
    ("__getitem__", "__len__", "__contains__", "__iter__", "get", "keys", "values", "items")
) | {"__getattr__", "index", "count"}
WRITES = frozenset(("__setitem__", "__setattr__", "append", "setdefault", "add", "insert", "put"))
"""Methods of proxies for `list`, `dict`, `Namespace` and `Queue` (multiprocessing.managers)."""


class Asked(NamedTuple):
    """A line at which processes ask a server, and how much time that takes."""

    place: str
    """`replay.py:26 sample`."""
    processes: tuple[Process, ...]
    share: float
    """Of the time of the one that spends most on it, 0 to 1."""
    per_s: float | None
    """How often these processes waited, for anything, each second; `None` if that is not known."""
    method: str
    """What is called there of a proxy, `__getitem__`; empty where no stack shows it."""


def asked(index: Index, server: Process, clients: Iterable[Process]) -> Sequence[Asked]:
    """The lines at which a server is asked, those with most requests first.

    A process that waits for each answer for long asks rarely; one that asks often keeps a server
    busy. A process gives up its core for each answer that it waits for. To pack and copy messages
    is part of asking where the line waits for the server as well.
    """
    known = {client.process: client for client in clients}
    found: defaultdict[str, dict[ProcessId, float]] = defaultdict(dict)
    waits: set[str] = set()
    for client in known.values():
        for each in shares(index, client):
            activity = each.activity
            asks = activity.kind == "waiting" and server.process in activity.providers
            if activity.place and (asks or activity.what in TRANSFERS):
                at_place = found[activity.place]
                at_place[client.process] = at_place.get(client.process, 0.0) + each.share
                waits.update((activity.place,) if asks else ())
    rates = {each: _switches_per_s(index, client) for each, client in known.items()}
    lines = []
    for place, of_each in found.items():
        if max(of_each.values()) < ASKED_SHARE or place not in waits:
            continue
        counts = [rates[each] for each in of_each]
        per_s = None if None in counts else sum(each or 0.0 for each in counts)
        processes = tuple(known[each] for each in of_each)
        method = _proxy_method(processes, place)
        lines.append(Asked(place, processes, max(of_each.values()), per_s, method))
    return sorted(lines, key=lambda each: (-(each.per_s or 0.0), -each.share))[:ASKED_SHOWN]


def _switches_per_s(index: Index, process: Process) -> float | None:
    """How often it gave up its core by itself in the last seconds, each second."""
    counts = index.history.of(process.process, "voluntary_switches")
    if len(counts) < 2 or counts[-1].at_s - counts[0].at_s < WATCHED_S:
        return None
    last_s = counts[-1].at_s
    since_s = max(counts[0].at_s, last_s - LAST_MINUTE_S)
    return max(0.0, switches_between(index, process, since_s, last_s) / (last_s - since_s))


def _proxy_method(processes: Sequence[Process], place: str) -> str:
    """The method of a Manager's proxy that is called at a line; empty where no stack shows it.

    multiprocessing makes these methods by exec (`MakeProxyType`, CPython 3.10 to 3.14).
    """
    for process in processes:
        stack = process.threads[0].stack if process.threads else ()
        if not calls(stack, "managers.py:_callmethod"):
            continue
        for above, frame in pairwise(stack):
            if above.file == "<string>" and not is_library(frame) and frame_words(frame) == place:
                return above.function
    return ""


def switches_between(index: Index, process: Process, begin_s: float, end_s: float) -> float:
    """How often a process gave up its core by itself in a stretch of time."""
    counts = index.history.of(process.process, "voluntary_switches")
    begin, end = first_at(counts, begin_s), first_at(counts, end_s)
    if end - begin < 2:
        return 0.0
    elapsed_s = counts[end - 1].at_s - counts[begin].at_s
    stack_stops = index.history.of(process.process, "stack_stops")
    stops = first_at(stack_stops, counts[end - 1].at_s) - first_at(stack_stops, counts[begin].at_s)
    # Those of other observers, and as far as they were counted one by one, of this one.
    wakes = index.history.of(process.process, "tracer_wakes")
    from_tracers: float = stops * SWITCHES_PER_SAMPLE
    if len(wakes) >= 2:
        first, last = first_at(wakes, counts[begin].at_s), first_at(wakes, counts[end - 1].at_s)
        last = min(last, len(wakes) - 1)
        from_tracers = max(from_tracers, wakes[last].value - wakes[min(first, last)].value)
    more = counts[end - 1].value - counts[begin].value - from_tracers
    return more * (end_s - begin_s) / elapsed_s if elapsed_s > 0 else 0.0
