"""File descriptors per process: counts by kind, share of the limit, and targets."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from mpwatch.model.ids import torch_creator
from mpwatch.model.samples import FdKind, FdLink, FdSample
from mpwatch.model.snapshot import Process
from mpwatch.model.units import count_text
from mpwatch.tui.elements.header import share_tone
from mpwatch.tui.elements.page import MARKS, Page, SnapshotView, age_text, ago_text
from mpwatch.tui.elements.styled_text import (
    Line,
    Row,
    ScreenColumn,
    Trend,
    cell,
    gauge,
    line,
    name_cell,
)
from mpwatch.tui.pages.tree import TREND_WIDTH, short_count

KINDS: tuple[FdKind, ...] = (
    "torch",
    "shm",
    "file",
    "pipe",
    "socket",
    "device",
    "gpu",
    "epoll",
    "other",
)
_MERGED: tuple[FdKind, ...] = ("other", "event", "timer")
"""Counted together in the column OTHER."""

COLUMNS = (
    ScreenColumn("PROCESS", 14, keep=9, most=24),
    ScreenColumn("USED", 5, align="right", keep=9, letter="F"),
    ScreenColumn("LIMIT", 5, align="right", keep=8),
    ScreenColumn("HARD", 5, align="right", keep=3),
    ScreenColumn("OF LIMIT", 12, keep=5),
    ScreenColumn("TREND", 6, align="right", keep=7, spreads=TREND_WIDTH),
    ScreenColumn("TORCH", 5, align="right", keep=8, letter="T"),
    ScreenColumn("SHM", 4, align="right", keep=4),
    ScreenColumn("FILE", 4, align="right", keep=6),
    ScreenColumn("PIPE", 4, align="right", keep=6),
    ScreenColumn("SOCKET", 6, align="right", keep=6),
    ScreenColumn("DEVICE", 6, align="right", keep=2),
    ScreenColumn("GPU", 4, align="right", keep=1),
    ScreenColumn("EPOLL", 5, align="right", keep=1),
    ScreenColumn("OTHER", 5, align="right", keep=3),
    ScreenColumn("READ", 6, align="right", keep=0),
)


def items(view: SnapshotView) -> list[Process]:
    """Running processes with a descriptor count, those nearest their limit first."""
    found = [p for p in view.current if p.sample.fds is not None]
    return sorted(found, key=lambda p: -_share(p))


def _share(process: Process) -> float:
    fds = process.sample.fds
    # Rounded, so that rows do not swap for differences below 0.01.
    return round(fds.used / fds.soft_limit, 2) if fds and fds.soft_limit else 0.0


def _row(process: Process, view: SnapshotView) -> Row:
    fds = process.sample.fds or FdSample(0, None, None)
    share = fds.used / fds.soft_limit if fds.soft_limit else None
    severity = next(
        (f.severity for f in view.findings_of.get(process.process, ()) if f.rule.startswith("fd-")),
        None,
    )
    row = Row(
        process.process,
        (
            name_cell(view.name(process.process), "title"),
            cell(short_count(fds.used), share_tone(share)),
            cell(short_count(fds.soft_limit)),
            cell(short_count(fds.hard_limit), "dim"),
            gauge(share, 12, share_tone(share)),
            Trend(process.trends.fds, least_span=16),
            *(cell(_of_kind(fds, kind)) for kind in KINDS),
            cell(age_text(view.age_s(fds.read_at_s)), "dim"),
        ),
    )
    return row if severity is None else Row(row.key, row.cells, mark=MARKS[severity])


def _of_kind(fds: FdSample, kind: FdKind) -> str:
    if fds.by_kind is None:
        return "-"
    kinds = _MERGED if kind == "other" else (kind,)
    return short_count(sum(fds.by_kind.get(k, 0) for k in kinds))


_NUMBER = re.compile(r"\[\d+\]")


def pointed_to(link: FdLink, view: SnapshotView, holders: Mapping[int, str]) -> str:
    """The target of a descriptor, without the part that differs between two of one kind.

    Args:
        link: The descriptor.
        view: Gives the names of processes.
        holders: Pid of the process that holds a socket, by inode.
    """
    if link.kind == "pipe":
        return "pipe"
    if link.address is not None:
        other = holders.get(link.peer) if link.peer is not None else None
        return link.address if other is None else f"{link.address}, to {other}"
    target = link.target.removesuffix(" (deleted)")
    pid = torch_creator(target.rpartition("/")[2])
    if pid is not None:
        maker = next((p for p in view.snapshot.processes if p.pid == pid), None)
        return f"torch segments made by {view.name(maker.process) if maker else f'pid {pid}'}"
    return _NUMBER.sub("", target).removesuffix(":")


def socket_holders(view: SnapshotView) -> dict[int, str]:
    """Pid of the process that holds a socket, by inode; the first of several that inherited it."""
    found: dict[int, str] = {}
    for process in view.snapshot.living():
        for link in process.sample.links:
            if link.kind == "socket" and link.inode is not None:
                found.setdefault(link.inode, view.name(process.process))
    return found


def details(process: Process, view: SnapshotView, width: int) -> tuple[Line, ...]:
    """The descriptors of the process under the cursor, by what they point to, most first."""
    fds = process.sample.fds
    if fds is None:
        return ()
    hard = count_text(fds.hard_limit)
    head = line(
        (f" {process.label} ({process.pid})", "title"), f"  {fds.used} open, hard limit {hard}"
    )
    if fds.links is None:
        return (head, cell("   what they point to was not read", "dim"))
    head = (*head, *cell(f", listed {ago_text(view.age_s(fds.read_at_s))}", "dim"))
    holders = socket_holders(view)
    counts = Counter((link.kind, pointed_to(link, view, holders)) for link in fds.links)
    lines = [head]
    for (kind, target), count in counts.most_common(60):
        lines.append(line(f"   {count:>5}  ", (f"{kind:<7}", "accent"), target))
    listed = sum((fds.by_kind or {}).values()) or len(fds.links)
    if listed > len(fds.links):
        unseen = listed - len(fds.links)
        lines.append(cell(f"   {unseen:>5}  more that were not read one by one", "dim"))
    if fds.used != listed:
        than = "more" if fds.used > listed else "fewer"
        lines.append(cell(f"   {abs(fds.used - listed):>5}  {than} by now", "dim"))
    return tuple(lines)


def _empty(view: SnapshotView) -> tuple[str, ...]:
    if not view.snapshot.living():
        return ("No descriptors: every process of this job has ended.",)
    return (
        "The descriptors of no process could be counted.",
        "/proc/PID/fd is readable for the same user or with CAP_SYS_PTRACE; try with sudo.",
    )


PAGE: Page[Process] = Page(
    name="files",
    title="Files",
    short="Files",
    columns=COLUMNS,
    items=items,
    key=lambda process: process.process,
    row=_row,
    text=lambda process, view: (
        f"{view.name(process.process)} {process.pid} {process.role} "
        + " ".join(process.sample.fds.by_kind or () if process.sample.fds else ())
    ),
    empty=_empty,
    details=details,
    details_share=0.4,
    process=lambda process: process.process,
    sorts={
        "USED": lambda p: float(p.sample.fds.used) if p.sample.fds else None,
        "TORCH": lambda p: (
            float((p.sample.fds.by_kind or {}).get("torch", 0)) if p.sample.fds else None
        ),
        "PROCESS": lambda p: p.label,
    },
    help=(
        "Open file descriptors of each process against its soft limit, nearest to it first.",
        "HARD  the value to which the soft limit can be raised without root.",
        "TORCH  tensors shared by file_descriptor; closed when the tensor is freed.",
        "TREND  shows change, not the absolute value.",
        "READ  age of the kinds: counts are always current, kinds are read again only when the"
        " count changes.",
        "Below: what the descriptors under the cursor point to, most first: leaks are on top.",
    ),
)
