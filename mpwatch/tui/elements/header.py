"""The lines around every page: job, mode, cost, host, exit status, page names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from mpwatch.describe.processes import can_have_hook
from mpwatch.model.cmdline import job_program
from mpwatch.model.host import HostSample
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.units import bytes_text, count_text, percent_text, seconds_text
from mpwatch.tui.elements.styled_text import (
    Line,
    Span,
    StatusPart,
    Tone,
    cell,
    fitted,
    line,
    width_of,
)


class ViewSettings(Struct, frozen=True):
    """The view settings that the status line shows."""

    title: str
    refresh_hz: float
    is_paused: bool = False
    filter: str = ""
    recording: str | None = None
    is_readonly: bool = False
    lost_at_start: int = 0
    """Hook records that were overwritten before the dashboard started."""
    node: str = ""
    """The node that the job runs on; empty for this machine."""
    skipped: int = 0
    """Snapshots of that node that were not sent, because this machine or the way was slow."""
    silence: str = ""
    """Why that node sends no snapshots, in few words; empty while it does."""


def mode_line(snapshot: Snapshot, settings: ViewSettings) -> Line:
    """LIVE, PAUSED, REPLAY or ENDED, with the rate or the position."""
    playback = snapshot.playback
    if settings.silence:
        return line((settings.silence.upper(), "critical"), (" last state kept", "dim"))
    if snapshot.mode == "ended" and playback is None:
        return line(("ENDED", "critical"), (" last state kept", "dim"))
    if playback is not None or snapshot.mode == "replay":
        if playback is None:
            return cell("REPLAY", "accent")
        where = f" {clock(playback.at_s)} of {clock(playback.length_s)}"
        speed = " paused" if playback.is_paused or settings.is_paused else f" x{playback.speed:g}"
        return line(("REPLAY", "accent"), where, speed)
    if settings.is_paused or snapshot.mode == "paused":
        return line(("PAUSED", "warning"), (" still collecting", "dim"))
    return line(("LIVE", "good"), f" {settings.refresh_hz:g}/s")


def clock(seconds: float) -> str:
    """Seconds as `4:07` or `1:04:07`."""
    whole = max(0, int(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def header(snapshot: Snapshot, settings: ViewSettings, width: int) -> Line:
    """The top line: job, mode, hooks, lost records, cost of watching."""
    root = snapshot.get(snapshot.root)
    left = [
        StatusPart(cell(" mpwatch", "title"), 7),
        StatusPart(line((program(root) or settings.title, "title")), 9),
        StatusPart(cell(str(snapshot.root.pid)), 8),
        *_part(snapshot),
        *([StatusPart(line(("on ", "dim"), (settings.node, "title")), 9)] if settings.node else []),
        *_facts(root, snapshot),
    ]
    right = [
        StatusPart(mode_line(snapshot, settings), 11),
        StatusPart(hooks_line(snapshot), 6),
        StatusPart(lost_line(snapshot, settings.lost_at_start), 5),
    ]
    if settings.skipped:
        right.append(StatusPart(cell(f"skipped {count_text(settings.skipped)}"), 4))
    right += _costs(snapshot)
    if settings.filter:
        right.insert(0, StatusPart(line(("filter ", "accent"), settings.filter), 10))
    if settings.recording:
        right.insert(0, StatusPart(cell("REC", "critical"), 10))
    if settings.is_readonly and snapshot.playback is None:
        right.append(StatusPart(cell("readonly"), 4))
    return fitted(left, right, width - 1)


def _part(snapshot: Snapshot) -> list[StatusPart]:
    """Of which job this is only a part."""
    part = snapshot.part_of
    if part is None:
        return []
    return [StatusPart(cell(f"{part.role} of job {part.root.pid}", "warning"), 9)]


def _costs(snapshot: Snapshot) -> list[StatusPart]:
    """The cpu cost in percent of one core: this program, and all hooks of the job together."""
    own = snapshot.own
    found = []
    if own.cpu_percent is not None:
        found.append(StatusPart(cell(f"own cpu {percent_text(own.cpu_percent)}%"), 1))
    if own.target_ns_per_s is not None:
        percent = own.target_ns_per_s / 1e7
        if own.calls_ns_per_s is None:
            found.append(StatusPart(cell(f"hook threads {percent:.2g}%"), 0))
        else:
            # The cost in the program's own threads is estimated from the number of calls.
            found.append(StatusPart(cell(f"hooks ~{percent + own.calls_ns_per_s / 1e7:.2g}%"), 0))
    return found


def program(root: Process | None) -> str:
    """The script or module that the user wrote; of a process of multiprocessing its label."""
    if root is None:
        return ""
    found = job_program(root.sample.cmdline)
    if found.kind == "code" and root.role != "main":
        return root.label
    return found.name or root.sample.name


def _facts(root: Process | None, snapshot: Snapshot) -> list[StatusPart]:
    if root is None:
        return []
    facts = []
    version = root.hook.python or root.sample.python_version
    if version:
        facts.append(StatusPart(cell(f"python {version}", "dim"), 2))
    if root.hook.torch:
        facts.append(StatusPart(cell(f"torch {root.hook.torch}", "dim"), 3))
    methods = start_methods(root, snapshot.processes)
    if methods:
        facts.append(StatusPart(cell(methods, "dim"), 2))
    if root.sharing_strategy:
        facts.append(StatusPart(cell(root.sharing_strategy, "dim"), 1))
    return facts


def start_methods(process: Process, among: Sequence[Process]) -> str:
    """How a process has started its children, `spawn`; its default while there are none."""
    used = {
        each.sample.start_method
        for each in among
        if each.sample.start_method and process.process in (each.parent, each.original_parent)
    }
    return ", ".join(sorted(used)) or process.start_method or ""


def hooks_line(snapshot: Snapshot) -> Line:
    """Processes with a ready hook, of those that can have a hook."""
    able = [p for p in snapshot.living() if can_have_hook(p)]
    if not able:
        return cell("hook -", "dim")
    ready = sum(p.hook.state == "ready" for p in able)
    tone: Tone = "good" if able and ready == len(able) else "dim" if ready == 0 else "warning"
    spans = [Span("hook "), Span(f"{ready}/{len(able)}", tone)]
    for state in ("pending", "silent"):
        count = sum(p.hook.state == state for p in able)
        if count:
            spans.append(Span(f" {count} {state}", "warning"))
    return tuple(spans)


def lost_line(snapshot: Snapshot, before: int = 0) -> Line:
    """Records that were overwritten before they could be read, less the first `before`."""
    lost = max(0, snapshot.lost - before)
    return cell(f"lost {count_text(lost)}", "warning" if lost else "")


def host_line(snapshot: Snapshot, width: int) -> Line:
    """The bottom line of the overview: load, free memory and GPUs of the host."""
    host = snapshot.host
    parts = [StatusPart(cell(" host", "title"), 10)]
    parts += [StatusPart(found, rank) for found, rank in _headroom(snapshot) if found]
    if host.usable_cpus or host.cpu_count:
        parts.append(StatusPart(cell(f"cores {host.usable_cpus or host.cpu_count}"), 4))
    if host.runnable is not None:
        parts.append(StatusPart(cell(f"runnable {host.runnable}"), 5))
    elif host.load_1m is not None:
        parts.append(StatusPart(cell(f"load {host.load_1m:.1f}"), 5))
    parts += _gpu_parts(snapshot)
    return fitted(parts, [], width)


def _headroom(snapshot: Snapshot) -> list[tuple[Line, int]]:
    host = snapshot.host
    return [(_shm_use(host), 9), (_memory_use(host), 8)]


def _shm_use(host: HostSample) -> Line:
    if host.shm is None:
        return line("/dev/shm ", ("unknown", "dim"))
    used = host.shm.total_bytes - host.shm.free_bytes
    share = used / host.shm.total_bytes if host.shm.total_bytes else 1.0
    total = bytes_text(host.shm.total_bytes)
    return line(
        "/dev/shm ",
        (f"{bytes_text(used)} of {total}", share_tone(share)),
        f" free {bytes_text(host.shm.free_bytes)}",
    )


def _memory_use(host: HostSample) -> Line:
    group = host.cgroup
    if group is not None and group.memory_limit_bytes and group.memory_bytes is not None:
        share = group.memory_bytes / group.memory_limit_bytes
        words = f"{bytes_text(group.memory_bytes)} of {bytes_text(group.memory_limit_bytes)}"
        return line("cgroup ", (words, share_tone(share)))
    if host.memory_total_bytes and host.memory_available_bytes is not None:
        share = 1 - host.memory_available_bytes / host.memory_total_bytes
        words = f"{bytes_text(host.memory_available_bytes)} free"
        return line("memory ", (words, share_tone(share)))
    return ()


def share_tone(share: float | None) -> Tone:
    """The tone of a used share of a limit: from 0.8 warning, from 0.95 critical."""
    if share is None or share < 0.8:
        return ""
    return "critical" if share >= 0.95 else "warning"


def _gpu_parts(snapshot: Snapshot) -> list[StatusPart]:
    parts = []
    for gpu in (snapshot.gpus or ())[:4]:
        if gpu.memory_used_bytes is None or not gpu.memory_total_bytes:
            continue
        share = gpu.memory_used_bytes / gpu.memory_total_bytes
        used, total = bytes_text(gpu.memory_used_bytes), bytes_text(gpu.memory_total_bytes)
        parts.append(
            StatusPart(line(f"gpu{gpu.index} ", (f"{used}/{total}", share_tone(share))), 3)
        )
    return parts


class Tab(NamedTuple):
    """The digit and names of a page in the bottom line; the only page of a screen has no digit."""

    digit: str
    title: str
    short: str


class TabRange(NamedTuple):
    """The range of clickable cells of a page."""

    start: int
    end: int
    digit: str


def tab_line(
    tabs: Sequence[Tab], current: str, hints: Sequence[tuple[str, str]], width: int
) -> tuple[Line, tuple[TabRange, ...]]:
    """The line and its clickable ranges.

    Args:
        tabs: The pages, in order.
        current: Digit of the page shown.
        hints: Keys with their action, most useful first; hints that do not fit are omitted.
        width: Cells of the line.
    """
    names = [tab.title for tab in tabs]
    if _width(tabs, names, 2) + 10 > width:
        names = [tab.short for tab in tabs]
    first = sum(map(len, hints[0])) + 4 if hints else 0
    if _width(tabs, names, 1) + first > width:
        names = [
            name if tab.digit == current else "" for tab, name in zip(tabs, names, strict=True)
        ]
    gap = 2 if _width(tabs, names, 2) + 10 <= width else 1
    spans: list[Span] = [Span(" ")]
    ranges = []
    at = 1
    for tab, name in zip(tabs, names, strict=True):
        text = f"{tab.digit} {name}".strip()
        ranges.append(TabRange(at, at + len(text), tab.digit))
        is_current = tab.digit == current
        spans.append(Span(text.removesuffix(name), "accent"))
        if name:
            spans.append(Span(name, "chosen" if is_current else ""))
        spans.append(Span(" " * gap))
        at += len(text) + gap
    room = width - width_of(spans) - 1
    for key, words in hints:
        text = f"  {key} {words}"
        if len(text) <= room:
            spans += [Span(f"  {key}", "accent"), Span(f" {words}", "dim")]
            room -= len(text)
    return tuple(spans), tuple(ranges)


def _width(tabs: Sequence[Tab], names: Sequence[str], gap: int) -> int:
    return 1 + sum(
        len(tab.digit) + 1 + len(name) + gap for tab, name in zip(tabs, names, strict=True)
    )


def ending_words(process: Process) -> str:
    """The exit status, short: `exit code 1`, `signal 9 (SIGKILL)`; empty while it runs."""
    return "" if process.ended is None else process.ended.words


def ending_tone(process: Process) -> Tone:
    """Good for exit code 0, critical for a signal or another code, plain if unknown."""
    ended = process.ended
    if ended is None or (ended.signal is None and ended.exit_code is None):
        return "dim"
    return "dim" if ended.signal is None and ended.exit_code == 0 else "critical"


def is_over(snapshot: Snapshot) -> bool:
    """Whether all processes of the job have ended."""
    return bool(snapshot.processes) and not snapshot.living()


def over_lines(snapshot: Snapshot) -> tuple[Line, ...]:
    """Exit status of an ended job: the root process first, then processes that failed."""
    root = snapshot.get(snapshot.root)
    if root is None or root.ended is None:
        return ()
    ago_s = max(0.0, snapshot.at_s - root.ended.at_s)
    when = "" if ago_s < 1 else f", {seconds_text(ago_s)} ago"
    lines = [
        line(
            (" ENDED ", "title"),
            f"{root.label} ({root.pid}): ",
            (root.ended.words, ending_tone(root)),
            (when, "dim"),
            _remaining(snapshot),
        )
    ]
    failed = [p for p in snapshot.processes if p is not root and ending_tone(p) == "critical"]
    lines += [
        line("   ", f"{p.label} ({p.pid}): ", (ending_words(p), "critical")) for p in failed[:3]
    ]
    if len(failed) > 3:
        lines.append(cell(f"   and {len(failed) - 3} more; all are in the tree", "dim"))
    return tuple(lines)


def _remaining(snapshot: Snapshot) -> Span:
    """The processes that still run after the root process has ended."""
    living = len(snapshot.living())
    if not living:
        return Span("; this is its last state", "dim")
    return Span(f"; {living} process{'es' * (living != 1)} still running", "warning")
