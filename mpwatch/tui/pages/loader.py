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
    cut,
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
    """`worker 3`; `3 of rank 1` if the number is not unique; `0 loader 2` of several loaders."""
    load = process.loader
    if load is not None and load.loader is not None and process.parent is not None:
        number = _numbers(view).get((process.parent, load.loader))
        if number is not None:
            short = process.label.removeprefix("worker ")
            owner = view.by_id.get(process.parent)
            of_rank = f" of {owner.label}" if owner is not None and owner.role == "rank" else ""
            return f"{short} loader {number}{of_rank}"
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
    """Two lines for each active loader: which one it is, then the wait for it and its batches.

    If no hook reports a loader, what its figures need.
    """
    if not view.snapshot.loaders and not any(process.loader for process in items(view)):
        if not items(view):
            return ()
        owners = {parent for p in items(view) for parent in (p.parent, p.original_parent)}
        states = {p.hook.state for p in view.snapshot.living() if p.process in owners}
        if not states.isdisjoint(("ready", "pending")):
            return (cell(f" {NEEDS_HOOK}; they appear with the next batches.", "dim"),)
        return (cell(f" {NEEDS_HOOK}: {view.attach_advice}.", "dim"),)
    return tuple(
        cut(content, width)
        for loader in view.snapshot.loaders
        for content in (share_line(loader, view), order_line(loader, view))
    )


def share_line(loader: Loader, view: SnapshotView) -> Line:
    """`DataLoader 2 of main at train.py:83  Pictures, batches of 64  4 workers  prefetch 2`."""
    number = _numbers(view).get((loader.process, loader.key))
    name = f" DataLoader{f' {number}' if number else ''} of {view.name(loader.process)}"
    spans: list[str | tuple[str, Tone]] = [(name, "title")]
    place, dataset, batch_size = (loader.data.get(x) for x in ("place", "dataset", "batch_size"))
    if isinstance(place, str):
        spans.append(f" at {place}")
    about = [str(dataset)] if isinstance(dataset, str) else []
    about += [f"batches of {batch_size}"] if isinstance(batch_size, int) else []
    if about:
        spans.append(f"  {', '.join(about)}")
    # A hook attached after the loader started does not know the number of workers.
    spans.append(f"  {counted(loader.workers or len(items(view)), 'worker')}")
    if loader.prefetch is not None:
        spans.append(f"  prefetch {loader.prefetch}")
    return line(*spans)


def order_line(loader: Loader, view: SnapshotView) -> Line:
    """`main waited 71% of the last minute  next 417 from worker 3  out of order 3`."""
    spans: list[str | tuple[str, Tone]] = ["  "]
    if (share := loader.wait_share) is not None:
        tone: Tone = "warning" if share >= 0.5 else ""
        owner = view.by_id.get(loader.process)
        it = "main" if owner is None or owner.role == "main" else "it"
        spans.append((f" {it} waited {share:.0%} of the last minute", tone))
    if loader.next_task is not None:
        spans.append(f"  next {loader.next_task}")
        if loader.owner_worker is not None:
            spans.append(f" from worker {loader.owner_worker}")
    if loader.parked:
        spans.append((f"  out of order {loader.parked}", "warning"))
    if loader.outstanding is not None:
        spans.append((f"  outstanding {loader.outstanding}", "dim"))
    return line(*spans)


def _numbers(view: SnapshotView) -> dict[tuple[ProcessId, int], int]:
    """Numbers for the loaders of processes that have several, from 1, by process and key."""
    return view.once("loader numbers", _numbered)


def _numbered(view: SnapshotView) -> dict[tuple[ProcessId, int], int]:
    keys: dict[ProcessId, list[int]] = {}
    for loader in view.snapshot.loaders:
        keys.setdefault(loader.process, []).append(loader.key)
    return {
        (process, key): number
        for process, found in keys.items()
        if len(found) > 1
        for number, key in enumerate(sorted(found), start=1)
    }


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
        "Above, each DataLoader with the line that iterates over it, its dataset and batch size,"
        " how long main waited for it, and its next batch. Numbers tell apart the loaders of a"
        " process.",
        "main takes batches in order; the worker of the next one holds up all others: finished ones"
        " that main has received and not used yet are out of order.",
        "QUEUED  batches assigned to the worker and not begun.",
        "PARKED  batches the worker has finished and main has not taken: an earlier batch is"
        " missing, or main is busy.",
        "DONE  batches fetched since the hook was attached.",
    ),
)
