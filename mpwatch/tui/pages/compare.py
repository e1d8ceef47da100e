"""Two snapshots side by side: changes of resources, started and ended processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.units import bytes_text, seconds_text
from mpwatch.tui.elements.page import Page, SnapshotView
from mpwatch.tui.elements.styled_text import Line, Row, ScreenColumn, Tone, cell, line

COLUMNS = (
    ScreenColumn("PROCESS", 20, keep=9, most=28),
    ScreenColumn("PRIVATE", 8, align="right", keep=8, letter="P"),
    ScreenColumn("+PRIVATE", 8, align="right", keep=9),
    ScreenColumn("SHM", 7, align="right", keep=5),
    ScreenColumn("+SHM", 8, align="right", keep=7),
    ScreenColumn("FDS", 5, align="right", keep=6, letter="F"),
    ScreenColumn("+FDS", 6, align="right", keep=8),
    ScreenColumn("MAPS", 6, align="right", keep=4, letter="M"),
    ScreenColumn("+MAPS", 6, align="right", keep=5),
    ScreenColumn("STATUS", 10, keep=6, grows=True),
)


@dataclass(frozen=True, slots=True)
class Pair:
    """One process in both snapshots."""

    before: Process | None
    after: Process | None

    @property
    def process(self) -> ProcessId:
        """Its identity."""
        found = self.after or self.before
        assert found is not None
        return found.process

    @property
    def label(self) -> str:
        """Its pid and name."""
        found = self.after or self.before
        assert found is not None
        return f"{found.pid} {found.label}"


Measure = Callable[[Process], "int | None"]


def _private(process: Process) -> int | None:
    return process.private_bytes


def _shm(process: Process) -> int | None:
    return process.shm_bytes


def _fds(process: Process) -> int | None:
    return process.sample.fds.used if process.sample.fds else None


def _maps(process: Process) -> int | None:
    return process.sample.maps.used if process.sample.maps else None


def change(pair: Pair, measure: Measure) -> int | None:
    """After minus before; `None` if either is unknown."""
    if pair.before is None or pair.after is None:
        return None
    then, now = measure(pair.before), measure(pair.after)
    return None if then is None or now is None else now - then


def pairs(before: Snapshot, after: Snapshot) -> list[Pair]:
    """Processes of both snapshots, largest growth of private memory first."""
    then = {p.process: p for p in before.processes}
    now = {p.process: p for p in after.processes}
    found = [Pair(then.get(key), now.get(key)) for key in {**now, **then}]
    return sorted(found, key=lambda pair: -(change(pair, _private) or 0))


def page(before: Callable[[], Snapshot | None]) -> Page[Pair]:
    """The page that compares with a saved snapshot."""

    def items(view: SnapshotView) -> list[Pair]:
        then = before()
        return pairs(then, view.snapshot) if then is not None else []

    def above(view: SnapshotView, width: int) -> tuple[Line, ...]:
        then = before()
        return () if then is None else (head(then, view.snapshot),)

    return Page(
        name="compare",
        title="Compare",
        short="Compare",
        columns=COLUMNS,
        items=items,
        key=lambda pair: pair.process,
        row=_row,
        text=lambda pair, view: f"{pair.label} {_status(pair)}",
        empty=lambda view: ("No snapshot is saved to compare with.", "Press b to save one."),
        above=above,
        details=_details,
        process=lambda pair: pair.process,
        sorts={
            "PRIVATE": lambda pair: _sortable(change(pair, _private)),
            "SHM": lambda pair: _sortable(change(pair, _shm)),
            "FDS": lambda pair: _sortable(change(pair, _fds)),
            "MAPS": lambda pair: _sortable(change(pair, _maps)),
        },
        help=(
            "Now against the snapshot saved with b: growth, started and ended processes.",
            "+PRIVATE, +SHM, +FDS, +MAPS are the changes; sorting by a column sorts by its change.",
            "b on this screen saves a new snapshot.",
        ),
    )


def _sortable(value: int | None) -> float | None:
    return None if value is None else float(value)


def head(before: Snapshot, after: Snapshot) -> Line:
    """The time between the snapshots, and changes of the machine."""
    words = f" now against {seconds_text(abs(after.at_s - before.at_s))} "
    words += "earlier" if after.at_s >= before.at_s else "later"
    spans: list[str | tuple[str, Tone]] = [(words, "title")]
    if before.host.shm and after.host.shm:
        grown = before.host.shm.free_bytes - after.host.shm.free_bytes
        spans.append(f"   /dev/shm {signed(grown, is_bytes=True)}")
    spans.append(f"   segments {signed(len(after.segments) - len(before.segments))}")
    then = {p.process for p in before.living()}
    now = {p.process for p in after.living()}
    spans.append(f"   processes started {len(now - then)}, ended {len(then - now)}")
    return line(*spans)


def signed(value: int | None, *, is_bytes: bool = False) -> str:
    """A change with its sign; empty for no change."""
    if value is None:
        return "-"
    if value == 0:
        return "="
    size = bytes_text(abs(value)) if is_bytes else str(abs(value))
    return f"{'+' if value > 0 else '-'}{size}"


def _row(pair: Pair, view: SnapshotView) -> Row:
    found = pair.after or pair.before
    assert found is not None
    cells: list[Line] = [cell(pair.label, "title")]
    for measure, is_bytes in ((_private, True), (_shm, True), (_fds, False), (_maps, False)):
        value = measure(found)
        cells.append(cell(bytes_text(value) if is_bytes else "-" if value is None else str(value)))
        moved = change(pair, measure)
        tone: Tone = "" if not moved else "warning" if moved > 0 else "good"
        cells.append(cell(signed(moved, is_bytes=is_bytes), tone))
    cells.append(cell(_status(pair), "accent"))
    return Row(pair.process, tuple(cells))


def _status(pair: Pair) -> str:
    if pair.before is None:
        return "new"
    if pair.after is None:
        return "no longer observed"
    if pair.after.is_gone and not pair.before.is_gone:
        return f"ended: {pair.after.ended.words}" if pair.after.ended else "ended"
    return ""


def _details(pair: Pair, view: SnapshotView, width: int) -> tuple[Line, ...]:
    then = pair.before.doing if pair.before else "did not exist yet"
    now = pair.after.doing if pair.after else "no longer observed"
    return (line((" then  ", "dim"), then), line((" now   ", "dim"), now))
