"""DataLoader: time per batch of each worker, and the worker that the main process waits for."""

from __future__ import annotations

from statistics import median

from mpwatch.diagnose.analysis.process_queries import counted
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Loader, Process, WorkerLoad
from mpwatch.model.units import bytes_text, count_text, percent_text, seconds_text
from mpwatch.tui.elements.page import MARKS, Page, SnapshotView
from mpwatch.tui.elements.styled_text import (
    Line,
    Row,
    ScreenColumn,
    Tone,
    Trend,
    cell,
    line,
    name_cell,
)

RECENT_WIDTH = 60
NEEDS_HOOK = "Fetch times, queues and waiting need the hook"
STRAGGLER_FACTOR = 3.0
"""A worker this many times slower than the median worker is marked."""

COLUMNS = (
    ScreenColumn("WORKER", 11, keep=9, most=12),
    ScreenColumn("PID", 7, align="right", keep=3),
    ScreenColumn("FETCH p50", 9, align="right", keep=8),
    ScreenColumn("p99", 7, align="right", keep=6),
    ScreenColumn("LAST BATCHES", 13, align="right", keep=7, spreads=RECENT_WIDTH),
    ScreenColumn("CPU", 4, align="right", keep=1, letter="C"),
    ScreenColumn("PRIVATE", 7, align="right", keep=0, letter="P"),
    ScreenColumn("QUEUED", 6, align="right", keep=6),
    ScreenColumn("PARKED", 6, align="right", keep=6),
    ScreenColumn("DONE", 6, align="right", keep=2),
    ScreenColumn("NOW", 20, keep=9, grows=True),
)


def items(view: SnapshotView) -> list[Process]:
    """The running loader workers, by the process that started them, loader and number."""
    found = [p for p in view.current if p.role == "loader-worker"]
    return sorted(found, key=_number)


def _number(process: Process) -> tuple[ProcessId, int, int]:
    load = process.loader
    number = load.worker_id if load and load.worker_id is not None else process.sample.worker_id
    return (
        process.parent or process.process,
        (load.loader or 0) if load else 0,
        number if number is not None else process.pid,
    )


def _row(process: Process, view: SnapshotView) -> Row:
    load = process.loader or WorkerLoad(process.sample.worker_id)
    tone = _speed_tone(load, view)
    slowest = view.once("slowest fetch", _slowest)
    severity = view.severity(process.process)
    row = Row(
        process.process,
        (
            name_cell(_process_name(process, view), "title"),
            cell(str(process.pid), "dim"),
            cell(seconds_text(load.fetch_p50_s), tone),
            cell(seconds_text(load.fetch_p99_s)),
            Trend(load.recent_s, top=slowest or 1.0),
            cell(percent_text(process.cpu_percent)),
            cell(bytes_text(process.private_bytes)),
            cell(count_text(load.queued)),
            cell(count_text(load.parked), "accent" if load.parked else ""),
            cell(count_text(load.fetched) if process.loader else "-"),
            _now(process, load, view),
        ),
    )
    return row if severity is None else Row(row.key, row.cells, mark=MARKS[severity])


def _process_name(process: Process, view: SnapshotView) -> str:
    """`worker 3`; `3 of rank 1` if the number is not unique."""
    name = view.name(process.process)
    return name if name == process.label else name.removeprefix("worker ")


def _speed_tone(load: WorkerLoad, view: SnapshotView) -> Tone:
    middle = view.once("middle fetch", _middle)
    if load.fetch_p50_s is None or middle is None:
        return ""
    return "warning" if load.fetch_p50_s > STRAGGLER_FACTOR * middle else ""


def _slowest(view: SnapshotView) -> float | None:
    return max((s for p in items(view) if p.loader for s in p.loader.recent_s), default=None)


def _middle(view: SnapshotView) -> float | None:
    """The median of the workers' median fetch times; `None` for a single worker."""
    known = [p.loader.fetch_p50_s for p in items(view) if p.loader and p.loader.fetch_p50_s]
    return median(known) if len(known) > 1 else None


def _now(process: Process, load: WorkerLoad, view: SnapshotView) -> Line:
    if process.loader is None:
        return cell(process.doing or "-", "dim")
    since = load.task_since_s
    if load.task is None:
        return cell(
            f"waits for work {seconds_text(since) if since is not None else ''}".rstrip(), "dim"
        )
    owned = any(
        loader.next_task == load.task and loader.owner_worker == load.worker_id
        for loader in view.snapshot.loaders
    )
    words = f"batch {load.task}"
    if load.index:
        words += f", index {load.index}"
    if since is not None:
        words += f", {seconds_text(since)}"
    return line(words, (", main waits" if owned else "", "warning"))


def above(view: SnapshotView, width: int) -> tuple[Line, ...]:
    """Two lines for each active loader: share of time main waits, and the batch in order.

    If no hook reports a loader, what its figures need.
    """
    if not view.snapshot.loaders and not any(process.loader for process in items(view)):
        return (cell(f" {NEEDS_HOOK}: {view.attach_advice}.", "dim"),) if items(view) else ()
    return tuple(
        content
        for loader in view.snapshot.loaders
        for content in (share_line(loader, view), order_line(loader))
    )


def share_line(loader: Loader, view: SnapshotView) -> Line:
    """`DataLoader of main  4 workers  prefetch 2  main waited 71% of the last minute`."""
    spans: list[str | tuple[str, Tone]] = [
        (f" DataLoader of {view.name(loader.process)}", "title"),
        # A hook attached after the loader started does not know the number of workers.
        f"  {counted(loader.workers or len(items(view)), 'worker')}",
    ]
    if loader.prefetch is not None:
        spans.append(f"  prefetch {loader.prefetch}")
    if loader.wait_share is not None:
        tone: Tone = "warning" if loader.wait_share >= 0.5 else ""
        owner = view.by_id.get(loader.process)
        it = "main" if owner is None or owner.role == "main" else "it"
        spans.append((f"  {it} waited {loader.wait_share:.0%} of the last minute", tone))
    return line(*spans)


def order_line(loader: Loader) -> Line:
    """`next in order: 417, owner worker 3  outstanding 8  parked 3`."""
    spans: list[str | tuple[str, Tone]] = ["  "]
    if loader.next_task is not None:
        spans.append(f" next in order: {loader.next_task}")
        if loader.owner_worker is not None:
            spans.append(f", owner worker {loader.owner_worker}")
    if loader.outstanding is not None:
        spans.append((f"  outstanding {loader.outstanding}", "dim"))
    if loader.parked is not None:
        spans.append((f"  parked {loader.parked}", "warning" if loader.parked else "dim"))
    return line(*spans)


def details(process: Process, view: SnapshotView, width: int) -> tuple[Line, ...]:
    """A sentence about the worker under the cursor."""
    found = view.findings_of.get(process.process)
    if found:
        return (line((f" {found[0].rule}  ", "warning"), found[0].summary), *_doing(process))
    return (
        line((f" {process.label} ({process.pid})  ", "title"), view.state(process)),
        *_doing(process),
    )


def _doing(process: Process) -> tuple[Line, ...]:
    return (cell(f"   {process.doing}"),) if process.doing else ()


def _empty(view: SnapshotView) -> tuple[str, ...]:
    if any(p.hook.state == "ready" for p in view.snapshot.living()):
        return (
            "No DataLoader with workers is active in this job.",
            "Its workers appear here once an iterator with num_workers > 0 has been started.",
        )
    return (
        "No DataLoader workers were found in this job, and no hook reports its loaders.",
        f"{NEEDS_HOOK}: {view.attach_advice}.",
    )


def _text(process: Process, view: SnapshotView) -> str:
    return f"{process.label} {process.pid} {process.doing} {view.state(process)}"


PAGE: Page[Process] = Page(
    name="loader",
    title="Loader",
    short="Load",
    columns=COLUMNS,
    items=items,
    key=lambda process: process.process,
    row=_row,
    text=_text,
    empty=_empty,
    above=above,
    details=details,
    process=lambda process: process.process,
    sorts={
        "FETCH p50": lambda p: p.loader.fetch_p50_s if p.loader else None,
        "p99": lambda p: p.loader.fetch_p99_s if p.loader else None,
        "CPU": lambda p: p.cpu_percent,
        "PRIVATE": lambda p: p.private_bytes,
        "QUEUED": lambda p: p.loader.queued if p.loader else None,
        "PARKED": lambda p: p.loader.parked if p.loader else None,
        "DONE": lambda p: float(p.loader.fetched) if p.loader else None,
    },
    help=(
        "DataLoader workers with their fetch time per batch, as measured by the hook.",
        "LAST BATCHES  one block per batch, all workers on one scale.",
        "CPU  percent of one core: a worker far below 100 that is never idle waits for its data.",
        "PRIVATE  memory of this worker only: what grows in one worker is its copy of the dataset.",
        "main takes batches in order; the owner of the next one holds up all others.",
        "QUEUED  batches assigned to the worker and not begun.",
        "PARKED  batches the worker has finished and main has not taken: an earlier batch is"
        " missing, or main is busy.",
        "DONE  batches fetched since the hook was attached.",
    ),
)
