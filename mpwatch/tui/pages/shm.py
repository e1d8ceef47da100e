"""Shared memory: owner, allocating line of code, and free space."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Segment
from mpwatch.model.units import bytes_text, count_text, seconds_text
from mpwatch.tui.elements.header import share_tone
from mpwatch.tui.elements.page import Page, SnapshotView, age_text
from mpwatch.tui.elements.styled_text import (
    Line,
    Row,
    ScreenColumn,
    Tone,
    cell,
    gauge,
    line,
    name_cell,
)

COLUMNS = (
    ScreenColumn("CREATOR", 14, keep=9, most=17, spreads=30),
    ScreenColumn("LINE", 21, keep=8, grows=True),
    ScreenColumn("KIND", 11, keep=6),
    ScreenColumn("COUNT", 5, align="right", keep=7, letter="N"),
    ScreenColumn("LIVE", 6, align="right", keep=8, letter="L"),
    ScreenColumn("MAPPED BY", 14, keep=6, most=22, spreads=48),
    ScreenColumn("OLDEST", 7, align="right", keep=5, letter="O"),
    ScreenColumn("COPIED", 6, align="right", keep=3),
)


@dataclass(frozen=True, slots=True)
class SegmentGroup:
    """The segments that one process created on one line of code."""

    maker: ProcessId | None
    maker_pid: int | None
    call_site: str | None
    kind: str
    segments: tuple[Segment, ...]
    wall_s: float
    """Time of the snapshot, in seconds since the epoch."""

    @property
    def key(self) -> tuple[int | None, str | None, str]:
        """Identifies the group across snapshots."""
        return (self.maker_pid, self.call_site, self.kind)

    @property
    def live_bytes(self) -> int | None:
        """Allocated bytes; `None` if unknown for all segments."""
        known = [_taken(s) for s in self.segments]
        found = [size for size in known if size is not None]
        return sum(found) if found else None

    @property
    def oldest_s(self) -> float | None:
        """Age of the oldest segment."""
        ages = [segment.age_s(self.wall_s) for segment in self.segments]
        return max((age for age in ages if age is not None), default=None)


def _taken(segment: Segment) -> int | None:
    if segment.allocated_bytes is not None:
        return segment.allocated_bytes
    return segment.size_bytes


def items(view: SnapshotView) -> list[SegmentGroup]:
    """Segments by creator, line and kind, the largest first."""
    groups: dict[tuple[ProcessId | None, int | None, str | None, str], list[Segment]]
    groups = defaultdict(list)
    for segment in view.snapshot.segments:
        if view.scope is not None and not _touches(segment, view.scope):
            continue
        key = (segment.creator, segment.creator_pid, segment.call_site, segment.kind)
        groups[key].append(segment)
    wall_s = view.snapshot.wall_s
    made = [
        SegmentGroup(*key, segments=tuple(found), wall_s=wall_s) for key, found in groups.items()
    ]
    return sorted(made, key=lambda group: -(group.live_bytes or 0))


def _touches(segment: Segment, process: ProcessId) -> bool:
    return process in (segment.creator, *segment.mappers, *segment.holders)


def maker_name(made: SegmentGroup, view: SnapshotView) -> str:
    """The name of the creator, with `ended` if it has; the pid if the process is unknown."""
    if made.maker is not None:
        process = view.by_id.get(made.maker)
        gone = " ended" if process is not None and process.is_gone else ""
        return view.name(made.maker) + gone
    return f"pid {made.maker_pid} ended" if made.maker_pid else "unknown"


def _row(made: SegmentGroup, view: SnapshotView) -> Row:
    mappers = {p for s in made.segments for p in (*s.mappers, *s.holders)}
    copied = _copied_share(made, view)
    orphaned = any(not (s.mappers or s.holders) and s.is_linked for s in made.segments)
    tone: Tone = "warning" if orphaned else ""
    return Row(
        made.key,
        (
            name_cell(maker_name(made, view), "title"),
            cell(made.call_site or "line not known", "" if made.call_site else "dim"),
            cell(made.kind),
            cell(count_text(len(made.segments))),
            cell(bytes_text(made.live_bytes)),
            cell(names(sorted(mappers), view) or "no process", tone),
            cell(age_text(made.oldest_s)),
            cell("-" if copied is None else f"{copied:.0%}"),
        ),
    )


def names(processes: Sequence[ProcessId], view: SnapshotView) -> str:
    """Processes by name, the first few of them: `main, worker 0 +3`."""
    shown = [view.name(process) for process in processes[:2]]
    more = f" +{len(processes) - 2}" if len(processes) > 2 else ""
    return ", ".join(shown) + more


def _copied_share(made: SegmentGroup, view: SnapshotView) -> float | None:
    flows = [f for f in view.snapshot.flows if f.sender == made.maker]
    sent = sum(flow.bytes for flow in flows)
    return sum(flow.copied_bytes for flow in flows) / sent if sent else None


def above(view: SnapshotView, width: int) -> tuple[Line, ...]:
    """The usage of /dev/shm with its forecast, and the number of segments by kind."""
    segments = [each for made in items(view) for each in made.segments]
    orphaned = sum(not (s.mappers or s.holders) and s.is_linked for s in segments)
    unlinked = sum(not s.is_linked for s in segments)
    counts = line(
        f" segments {count_text(len(segments))}",
        (f", unlinked {unlinked}, named {len(segments) - unlinked}", "dim"),
        (f", orphaned {orphaned}", "warning" if orphaned else "dim"),
    )
    return (usage_line(view), counts)


def usage_line(view: SnapshotView) -> Line:
    """`/dev/shm 64.0M, used 61.8M [######..]  full in 2 s`."""
    found = view.snapshot.host.shm
    if found is None:
        return line(" /dev/shm ", ("could not be read", "warning"))
    used = found.total_bytes - found.free_bytes
    share = used / found.total_bytes if found.total_bytes else 1.0
    words = f" {found.path} {bytes_text(found.total_bytes)}, used {bytes_text(used)} "
    tone = share_tone(share)
    spans: list[tuple[str, Tone]] = [(f" {share:.0%}", tone)]
    eta = next((f.eta_s for f in view.snapshot.findings if f.rule.startswith("shm-full")), None)
    if eta is not None:
        spans.append((f"  full in {seconds_text(eta)}", "critical"))
    if found.total_inodes and found.free_inodes is not None:
        used_inodes = found.total_inodes - found.free_inodes
        spans.append(
            (f"  inodes {count_text(used_inodes)} of {count_text(found.total_inodes)}", "dim")
        )
    return (*cell(words), *gauge(share, 22, tone), *line(*spans))


def details(made: SegmentGroup, view: SnapshotView, width: int) -> tuple[Line, ...]:
    """The segments of the group under the cursor, oldest first."""
    name = maker_name(made, view)
    count = len(made.segments)
    lines = [line((f" {name}", "title"), f" made {count} {_where(made, view)}")]
    if name == "unknown":
        lines = [line((" not known", "title"), f" which process made these {count}: {_UNSEEN}")]
    oldest = sorted(made.segments, key=lambda s: -(s.age_s(made.wall_s) or 0.0))
    for segment in oldest[:40]:
        held = names(sorted({*segment.mappers, *segment.holders}), view) or "no process"
        lines.append(
            line(
                f"   {bytes_text(segment.size_bytes):>6} ",
                (f"{'named' if segment.is_linked else 'unlinked':<9}", "dim"),
                f"{age_text(segment.age_s(made.wall_s)):>8}  ",
                f"held by {held}  ",
                (segment.path, "dim"),
            )
        )
    return tuple(lines)


_UNSEEN = "there was no hook at that time, and the processes that map them may not have made them"


def _where(made: SegmentGroup, view: SnapshotView) -> str:
    """The line that made the segments, or why it is not known."""
    if made.call_site:
        return f"at {made.call_site}"
    maker = view.by_id.get(made.maker) if made.maker is not None else None
    if maker is not None and maker.hook.state == "ready":
        return "at an unknown line; the hook samples only some allocations"
    return "at an unknown line: it had no hook then"


def _empty(view: SnapshotView) -> tuple[str, ...]:
    return (
        "No shared-memory segments: this job maps nothing from /dev/shm right now.",
        "They appear when a tensor is sent through a queue or a worker returns a batch.",
    )


PAGE: Page[SegmentGroup] = Page(
    name="shm",
    title="Shm",
    short="Shm",
    columns=COLUMNS,
    items=items,
    key=lambda made: made.key,
    row=_row,
    text=lambda made, view: (
        f"{maker_name(made, view)} {made.call_site} {made.kind} {made.maker_pid}"
    ),
    empty=_empty,
    above=above,
    details=details,
    details_share=0.35,
    process=lambda made: made.maker,
    sorts={
        "COUNT": lambda made: float(len(made.segments)),
        "LIVE": lambda made: made.live_bytes,
        "OLDEST": lambda made: made.oldest_s,
        "KIND": lambda made: made.kind,
    },
    help=(
        "Segments by the process and the line of code that created them.",
        "torch is unlinked at creation (file_descriptor strategy), torch-named still has its name,"
        " psm is multiprocessing.shared_memory, semaphore a lock or queue, nccl its transport.",
        "LIVE is the allocated size; orphaned segments have a name and no process maps them.",
        "COPIED  share of the creator's bytes that were copied into new shared memory.",
        "Below: the segments of the line under the cursor, oldest first.",
    ),
)
