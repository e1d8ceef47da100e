"""One process: identity, limits with bars, memory and environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Process
from mpwatch.model.units import bytes_text, count_text, percent_text, seconds_text
from mpwatch.tui.elements.header import ending_tone, share_tone
from mpwatch.tui.elements.page import Page, SnapshotView, ago_text, state_tone
from mpwatch.tui.elements.styled_text import Line, Row, ScreenColumn, Tone, cell, cut, gauge, line
from mpwatch.tui.pages.events import wall_time
from mpwatch.tui.pages.tree import HOOK_TONES, command


def head(view: SnapshotView, process: Process, width: int) -> tuple[Line, ...]:
    """Four lines about a process: identity, limits, activity."""
    lines = (identity_line(view, process), *limits(view, process), _doing(process))
    return tuple(cut(each, width) for each in lines)


def identity_line(view: SnapshotView, process: Process) -> Line:
    """`41829 worker 3  running 98%  fork of main (41823) at 12:01:07  hook ready`."""
    state = view.state(process)
    spans: list[str | tuple[str, Tone]] = [
        (f" {process.pid} {process.label}", "title"),
        "  ",
        (state, state_tone(state)),
    ]
    if process.ended is not None:
        spans.append((f" with {process.ended.words}", ending_tone(process)))
    elif process.cpu_percent is not None:
        spans.append(f" {percent_text(process.cpu_percent)}%")
    parent = process.original_parent or process.parent
    if parent is not None:
        method = process.sample.start_method
        how = f"{method} of " if method else "child of "
        spans.append(f"  {how}{view.full_name(parent)}")
    if process.sample.born_wall_s is not None:
        began = " at" if parent is not None else "  started at"
        spans.append((f"{began} {wall_time(process.sample.born_wall_s)[:8]}", "dim"))
    hook = process.hook
    spans += ["  hook ", (hook.state, HOOK_TONES[hook.state])]
    if hook.reason:
        spans.append((f" {hook.reason}", "dim"))
    return line(*spans)


def limits(view: SnapshotView, process: Process) -> tuple[Line, Line]:
    """Descriptors and mappings against their limits, and memory."""
    sample = process.sample
    fds, maps = sample.fds, sample.maps
    first = (
        *_limit("fds", fds.used if fds else None, fds.soft_limit if fds else None),
        *_limit("   maps", maps.used if maps else None, maps.limit if maps else None),
        *line((f"   nice {sample.nice}" if sample.nice is not None else "", "dim")),
    )
    private = process.private_bytes
    memory = [f" memory {bytes_text(private)} private"]
    if sample.memory is not None:
        memory.append(f"{bytes_text(sample.memory.rss_bytes)} resident")
    if process.shm_bytes is not None:
        memory.append(f"{bytes_text(process.shm_bytes)} shared segments")
    growth = memory_growth(process)
    if growth:
        memory.append(growth)
    return (first, cell(", ".join(memory)))


def _limit(name: str, used: int | None, limit: int | None) -> Line:
    share = used / limit if used is not None and limit else None
    words = cell(f" {name} {count_text(used)} of {count_text(limit)} ")
    return (*words, *gauge(share, 20, share_tone(share)))


GROWTH_BYTES = 1 << 20
"""Less comes and goes in any process."""


def memory_growth(process: Process) -> str:
    """How much private memory has grown over the trend; empty unless it grew steadily."""
    known = [value for value in process.trends.private_bytes if value is not None]
    if (
        len(known) < 4
        or known[-1] - known[0] < GROWTH_BYTES
        or any(after < before for before, after in pairwise(known))
    ):
        return ""
    return f"+{bytes_text(known[-1] - known[0])} in {len(known)} readings"


def _doing(process: Process) -> Line:
    return cell(f" {process.doing}") if process.doing else cell(f" {command(process)}", "dim")


@dataclass(frozen=True, slots=True)
class Fact:
    """One named value about a process."""

    group: str
    name: str
    value: str
    tone: Tone = ""


COLUMNS = (
    ScreenColumn("ABOUT", 10, keep=7),
    ScreenColumn("WHAT", 22, keep=8),
    ScreenColumn("VALUE", 40, keep=9, grows=True),
)


def facts(view: SnapshotView) -> list[Fact]:
    """All facts about the process in scope that no other page shows."""
    found: list[Fact] = []
    for process in view.processes:
        found += _identity(process) + _memory(process, view) + _hook(process)
        found += [
            Fact("variable", name, value) for name, value in process.sample.environment.items()
        ]
        found += [
            Fact("hook gauge", name, gauge_text(value))
            for name, value in process.gauges.items()
            if name not in _SHOWN_ABOVE
        ]
        found += [Fact("problem", "", words, "warning") for words in process.problems]
    return found


_SHOWN_ABOVE = ("own", "strategy", "shared_cache")
"""Gauges that other facts show in words."""


def gauge_text(value: object) -> str:
    """A gauge in one line: `outstanding 2, issued 1491`; unknown values are left out."""
    if isinstance(value, Mapping):
        known = ((name, each) for name, each in value.items() if each is not None)
        return ", ".join(f"{name} {gauge_text(each)}" for name, each in known)
    if isinstance(value, (list, tuple)):
        return "; ".join(gauge_text(each) for each in value) or "none"
    return str(value)


def _identity(process: Process) -> list[Fact]:
    sample = process.sample
    found = [Fact("process", "command", command(process)), Fact("process", "role", process.role)]
    rows: list[tuple[str, object]] = [
        ("executable", sample.exe),
        ("python", process.hook.python or sample.python_version),
        ("torch", process.hook.torch),
        ("started by", sample.start_method),
        ("starts children by", None if sample.start_method else process.start_method),
        ("shares tensors by", process.sharing_strategy),
        ("pid in its namespace", sample.ns_pid),
        ("user id", sample.uid),
        ("nice", sample.nice),
        ("may run on cpus", sample.cpus_allowed),
        ("oom score adjustment", sample.oom_score_adj),
    ]
    return found + [Fact("process", name, str(value)) for name, value in rows if value is not None]


def _memory(process: Process, view: SnapshotView) -> list[Fact]:
    memory = process.sample.memory
    if memory is None:
        return [Fact("memory", "", "could not be read", "warning")]
    rows = [
        ("resident", memory.rss_bytes),
        ("proportional", memory.pss_bytes),
        ("private, written", memory.private_dirty_bytes),
        ("private, from files", memory.private_clean_bytes),
        ("shared, written", memory.shared_dirty_bytes),
        ("shared, from files", memory.shared_clean_bytes),
        ("shared segments", memory.shmem_bytes),
        ("swapped out", memory.swap_bytes),
    ]
    found = [Fact("memory", name, bytes_text(value)) for name, value in rows if value is not None]
    found.append(Fact("memory", "read", ago_text(view.age_s(memory.read_at_s)), "dim"))
    if process.sample.read_bytes is not None:
        found.append(Fact("files", "read", bytes_text(process.sample.read_bytes)))
    if process.sample.written_bytes is not None:
        found.append(Fact("files", "written", bytes_text(process.sample.written_bytes)))
    return found


def _hook(process: Process) -> list[Fact]:
    hook = process.hook
    words = f"{hook.state}{f': {hook.reason}' if hook.reason else ''}"
    found = [Fact("hook", "state", words, HOOK_TONES[hook.state])]
    if hook.state == "absent":
        return found
    lost = f"lost {count_text(hook.lost)}"
    if hook.lost_notes:
        lost += f" ({count_text(hook.lost_notes)} of them notes)"
    found.append(Fact("hook", "events", f"{count_text(hook.events)}, {lost}"))
    if hook.own_cost_ns is not None:
        words = f"{seconds_text(hook.own_cost_ns / 1e9)} of cpu time since it was attached"
        found.append(Fact("hook", "its thread took", words))
    if hook.own_calls_ns is not None:
        words = f"about {seconds_text(hook.own_calls_ns / 1e9)}, estimated from the number of calls"
        found.append(Fact("hook", "its wrappers took", words))
    found += [Fact("hook", f"cannot see {n}", why, "warning") for n, why in hook.missing.items()]
    cache = process.shared_cache
    if cache is not None:
        limit = f" of {count_text(cache.limit)}" if cache.limit is not None else ""
        expired = f", {count_text(cache.expired)} expired" if cache.expired is not None else ""
        found.append(Fact("hook", "SharedCache", f"{count_text(cache.entries)}{limit}{expired}"))
    return found


def _row(fact: Fact, view: SnapshotView) -> Row:
    return Row(
        (fact.group, fact.name, fact.value if fact.group == "problem" else ""),
        (cell(fact.group, "dim"), cell(fact.name), cell(fact.value, fact.tone)),
    )


def _process(fact: Fact) -> ProcessId | None:
    return None


PAGE: Page[Fact] = Page(
    name="facts",
    title="Facts",
    short="Facts",
    columns=COLUMNS,
    items=facts,
    key=lambda fact: (fact.group, fact.name, fact.value if fact.group == "problem" else ""),
    row=_row,
    text=lambda fact, view: f"{fact.group} {fact.name} {fact.value}",
    empty=lambda view: ("This process is no longer observed.",),
    details=lambda fact, view, width: (
        line((f" {fact.name or fact.group}  ", "title"), fact.value),
    ),
    process=_process,
    help=(
        "How its memory is split, how it was started, the environment variables that matter,"
        " gauges of the hook, and what could not be read and why.",
    ),
)
