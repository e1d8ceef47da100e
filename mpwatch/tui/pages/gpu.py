"""GPUs: memory use and load of each device, and memory of each process on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from mpwatch.describe.frames import frame_words
from mpwatch.diagnose.analysis.stack_patterns import cuda_call
from mpwatch.model.ids import ProcessId
from mpwatch.model.samples import GpuSample
from mpwatch.model.snapshot import GpuUse, Process
from mpwatch.model.units import bytes_text, percent_text
from mpwatch.tui.elements.header import share_tone
from mpwatch.tui.elements.page import Page, SnapshotView, age_text, ago_text
from mpwatch.tui.elements.styled_text import Line, Row, ScreenColumn, cell, gauge, line

COLUMNS = (
    ScreenColumn("GPU / PROCESS", 24, keep=9, most=40),
    ScreenColumn("MEMORY", 7, align="right", keep=9),
    ScreenColumn("OF", 7, align="right", keep=8),
    ScreenColumn("USED", 16, keep=4),
    ScreenColumn("TENSORS", 7, align="right", keep=7),
    ScreenColumn("RESERVED", 8, align="right", keep=7),
    ScreenColumn("READ", 6, align="right", keep=5),
    ScreenColumn("UTIL", 4, align="right", keep=6),
    ScreenColumn("TEMP", 4, align="right", keep=3),
    ScreenColumn("POWER", 6, align="right", keep=3),
    ScreenColumn("VISIBLE", 7, keep=2),
    ScreenColumn("", 1, keep=0, grows=True),
)
STACK_AGE_S = 5.0
"""An older stack no longer says what a thread does now."""


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
    return _device_row(item.gpu) if item.pid is None else _process_row(item, view)


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
            cell(""),
            cell(_percent(gpu.utilization_percent)),
            cell("-" if gpu.temperature_c is None else f"{gpu.temperature_c:.0f}C"),
            cell("-" if gpu.power_w is None else f"{gpu.power_w:.0f}W"),
            cell(""),
            cell(""),
        ),
    )


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{percent_text(value)}%"


def _process_row(item: GpuRow, view: SnapshotView) -> Row:
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
            cell(age_text(view.age_s(use.read_at_s)) if use.read_at_s is not None else "", "dim"),
            cell(""),
            cell(""),
            cell(""),
            _visible(item.process),
            cell(""),
        ),
        tone="" if item.process else "dim",
    )


def _visible(process: Process | None) -> Line:
    """The GPUs that a process was started with the right to see; an empty list hides all."""
    found = process.sample.environment.get("CUDA_VISIBLE_DEVICES") if process else None
    return cell("-", "dim") if found is None else cell(found or "none")


class AllocatorRequest(NamedTuple):
    """Which processes can be asked for the figures of torch's CUDA allocator."""

    asked: tuple[ProcessId, ...]
    left_out: tuple[tuple[Process, str], ...]
    """Processes with a hook that are not asked, with the reason."""


def allocator_request(view: SnapshotView) -> AllocatorRequest:
    """The processes of the job on a GPU whose hooks can be asked without a risk to the job.

    The hook takes the allocator's lock with the GIL held. A thread that frees memory holds this
    lock until running kernels end, so no process is asked in which a thread may wait for the GPU.
    """
    asked: list[ProcessId] = []
    left_out: list[tuple[Process, str]] = []
    for process in {i.process.process: i.process for i in items(view) if i.process}.values():
        if process.hook.state != "ready":
            left_out.append((process, f"its hook is {process.hook.state}"))
            continue
        reason = reason_not_to_lock_allocator(process, view.snapshot.at_s)
        if reason is None:
            asked.append(process.process)
        else:
            left_out.append((process, reason))
    return AllocatorRequest(tuple(asked), tuple(left_out))


def reason_not_to_lock_allocator(process: Process, at_s: float) -> str | None:
    """Why the lock of torch's CUDA allocator may not be free in a process; `None` if it should be.

    Args:
        process: A process with a hook.
        at_s: The time of the snapshot.
    """
    taken_s = [t.stack_at_s for t in process.threads if t.stack and t.stack_at_s is not None]
    if not taken_s:
        return "no stack of it was taken"
    if at_s - max(taken_s) > STACK_AGE_S:
        return f"its last stack is older than {STACK_AGE_S:g} s"
    for thread in process.threads:
        frame = cuda_call(thread)
        if frame is not None:
            return f"{thread.name} is in {frame_words(frame)}"
    return None


def request_words(request: AllocatorRequest) -> str:
    """What is asked and what is not, for a notification."""
    count = len(request.asked)
    asked = f"Asked {count} hook{'' if count == 1 else 's'} for the allocator's figures."
    if not request.left_out:
        return asked if count else "No process of this job is on a GPU."
    process, reason = request.left_out[0]
    more = len(request.left_out) - 1
    others = f", and {more} more" if more else ""
    refused = f"Not asked: {process.label} ({process.pid}), {reason}{others}."
    return f"{asked} {refused}" if count else refused


def above(view: SnapshotView, width: int) -> tuple[Line, ...]:
    """How to have the allocator's figures read; nothing in a replay or without a GPU."""
    is_live = view.snapshot.playback is None and view.snapshot.mode != "ended"
    if not is_live or not view.snapshot.gpus:
        return ()
    return (
        line(
            (" allocator figures: press ", "dim"),
            ("a", "accent"),
            (" to ask the hooks; not while a kernel is stuck", "dim"),
        ),
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
        return (cell(f" pid {item.pid} is not a process of this job"),)
    head = line((f" {view.full_name(item.process.process)}", "title"), f"  {item.process.doing}")
    return (head, _allocator_line(item, view))


def _allocator_line(item: GpuRow, view: SnapshotView) -> Line:
    """The figures of torch's allocator, or why there are none."""
    use, process = item.use, item.process
    if use is not None and use.read_at_s is not None:
        return cell(
            f"   torch holds {bytes_text(use.reserved_bytes)} of the GPU's memory, "
            f"{bytes_text(use.allocated_bytes)} of it in tensors; "
            f"read {ago_text(view.age_s(use.read_at_s))}"
        )
    reading = process.gauges.get("cuda") if process is not None else None
    if isinstance(reading, Mapping) and reading.get("error"):
        return cell(f"   the hook could not read the allocator: {reading['error']}", "warning")
    return cell("   the allocator's figures have not been read", "dim")


def _empty(view: SnapshotView) -> tuple[str, ...]:
    if view.snapshot.gpus is None:
        reasons = [p for p in view.snapshot.problems if "nvml" in p.lower() or "gpu" in p.lower()]
        return (
            reasons[0] if reasons else "GPUs are not shown: NVML is not available.",
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
    above=above,
    details=details,
    process=_process,
    help=(
        "Each GPU with the processes that hold memory on it.",
        "MEMORY    as counted by the driver: allocator, CUDA context, libraries.",
        "RESERVED  the part held by torch's allocator.",
        "TENSORS   the part of that in use.",
        "READ      the age of these two figures.",
        "VISIBLE   CUDA_VISIBLE_DEVICES when the process was started, on wide screens; a dash where"
        " it was not set or could not be read. What the program sets itself is not seen.",
        "a asks the hooks for the allocator's figures, once per press. This takes the allocator's"
        " lock, so a process is left out while one of its threads may wait for the GPU, and while"
        " its last stack is older than 5 s (s takes stacks).",
    ),
)
