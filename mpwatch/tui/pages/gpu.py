"""GPUs: memory use and load of each device, and memory of each process on it."""

from __future__ import annotations

from dataclasses import dataclass

from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import GpuSample
from mpwatch.model.snapshot import GpuUse, Process
from mpwatch.model.units import bytes_text, percent_text
from mpwatch.tui.elements.header import share_tone
from mpwatch.tui.elements.page import Page
from mpwatch.tui.elements.snapshot_view import SnapshotView
from mpwatch.tui.elements.styled_text import Line, Row, ScreenColumn, cell, gauge, line

COLUMNS = (
    ScreenColumn("GPU / PROCESS", 24, keep=9, most=40),
    ScreenColumn("MEMORY", 7, align="right", keep=9),
    ScreenColumn("OF", 7, align="right", keep=8),
    ScreenColumn("USED", 16, keep=6),
    ScreenColumn("TENSORS", 7, align="right", keep=7),
    ScreenColumn("RESERVED", 8, align="right", keep=7),
    ScreenColumn("UTIL", 4, align="right", keep=6),
    ScreenColumn("TEMP", 4, align="right", keep=3),
    ScreenColumn("POWER", 6, align="right", keep=3),
    ScreenColumn("", 1, keep=0, grows=True),
)


@dataclass(frozen=True, slots=True)
class GpuRow:
    """A device, or a process on one."""

    gpu: GpuSample
    process: Process | None = None
    pid: int | None = None
    memory_bytes: int | None = None
    use: GpuUse | None = None

    @property
    def key(self) -> tuple[str, int | None]:
        """Uuid of the device and pid."""
        return (self.gpu.uuid, self.pid)


def items(view: SnapshotView) -> list[GpuRow]:
    """Each device with its processes below it, those of the job first."""
    found: list[GpuRow] = []
    by_pid = {p.pid: p for p in view.snapshot.living()}
    for gpu in view.snapshot.gpus or ():
        users = []
        for user in gpu.processes:
            process = by_pid.get(user.pid)
            use = next((u for u in process.gpus if u.index == gpu.index), None) if process else None
            users.append(GpuRow(gpu, process, user.pid, user.memory_bytes, use))
        if view.scope is not None:
            users = [u for u in users if u.process and u.process.process == view.scope]
            if not users:
                continue
        found.append(GpuRow(gpu))
        found += sorted(users, key=lambda u: (u.process is None, -(u.memory_bytes or 0)))
    return found


def _row(item: GpuRow, view: SnapshotView) -> Row:
    return _device_row(item.gpu) if item.pid is None else _process_row(item)


def _device_row(gpu: GpuSample) -> Row:
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    share = used / total if used is not None and total else None
    return Row(
        (gpu.uuid, None),
        (
            cell(f"gpu{gpu.index} {gpu.name}", "title"),
            cell(bytes_text(used), share_tone(share)),
            cell(bytes_text(total)),
            gauge(share, 16, share_tone(share)),
            cell(""),
            cell(""),
            cell(percent_text(gpu.utilization_percent)),
            cell("-" if gpu.temperature_c is None else f"{gpu.temperature_c:.0f}C"),
            cell("-" if gpu.power_w is None else f"{gpu.power_w:.0f}W"),
            cell(""),
        ),
    )


def _process_row(item: GpuRow) -> Row:
    label = item.process.label if item.process else "not of this job"
    total = item.gpu.memory_total_bytes
    share = item.memory_bytes / total if item.memory_bytes is not None and total else None
    use = item.use or GpuUse(item.gpu.index, None)
    return Row(
        item.key,
        (
            line(("   ", "dim"), f"{item.pid} ", (label, "title" if item.process else "dim")),
            cell(bytes_text(item.memory_bytes)),
            cell(""),
            gauge(share, 16) if share is not None else cell(""),
            cell(bytes_text(use.allocated_bytes)),
            cell(bytes_text(use.reserved_bytes)),
            cell(""),
            cell(""),
            cell(""),
            cell(""),
        ),
        tone="" if item.process else "dim",
    )


def _process(item: GpuRow) -> ProcessId | None:
    return item.process.process if item.process else None


def details(item: GpuRow, view: SnapshotView, width: int) -> tuple[Line, ...]:
    """A sentence about the device or process under the cursor."""
    if item.pid is None:
        problems = "; ".join(item.gpu.problems)
        return (
            line((f" {item.gpu.name}", "title"), f"  {item.gpu.uuid}"),
            cell(f"   {problems}", "warning"),
        )
    if item.process is None:
        return (cell(f" pid {item.pid} is not one of the processes watched"),)
    return (cell(f" {view.full_name(item.process.process)}  {item.process.doing}"),)


def _empty(view: SnapshotView) -> tuple[str, ...]:
    if view.snapshot.gpus is None:
        reasons = [p for p in view.snapshot.problems if "nvml" in p.lower() or "gpu" in p.lower()]
        return (
            "No GPU is accessible: " + (reasons[0] if reasons else "NVML is not available."),
            "With an NVIDIA driver and its libnvidia-ml.so, devices and their users appear here.",
        )
    return ("The driver reports no GPU on this machine.",)


PAGE: Page[GpuRow] = Page(
    name="gpu",
    title="GPU",
    short="GPU",
    columns=COLUMNS,
    items=items,
    key=lambda item: item.key,
    row=_row,
    text=lambda item, view: (
        f"{item.gpu.name} {item.pid} {item.process.label if item.process else ''}"
    ),
    empty=_empty,
    details=details,
    process=_process,
    help=(
        "Each GPU with the processes that hold memory on it.",
        "MEMORY is what the driver counts; TENSORS and RESERVED the figures of torch's allocator.",
        "The difference is the CUDA context, libraries, and memory other allocators hold.",
    ),
)
