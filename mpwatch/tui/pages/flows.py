"""Tensor flows between processes, drawn as lines from the senders to each receiver."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Flow
from mpwatch.model.units import bytes_text, count_text, seconds_text
from mpwatch.tui.elements.page import Page, SnapshotView
from mpwatch.tui.elements.styled_text import Line, Row, ScreenColumn, Tone, cell, line, name_cell

COLUMNS = (
    ScreenColumn("SENDER", 12, keep=9, most=22),
    ScreenColumn("TENSORS/s", 9, align="right", keep=7),
    ScreenColumn("BYTES/s", 8, align="right", keep=8, letter="B"),
    ScreenColumn("EACH", 6, align="right", keep=2),
    ScreenColumn("LAT p50", 7, align="right", keep=6),
    ScreenColumn("LAT p99", 7, align="right", keep=5),
    ScreenColumn("COPIED", 6, align="right", keep=4),
    ScreenColumn("IN FLIGHT", 9, align="right", keep=3),
    ScreenColumn("TOTAL", 6, align="right", keep=2),
    ScreenColumn("RECEIVER", 22, keep=9, grows=True),
)


@dataclass(frozen=True, slots=True)
class FlowRow:
    """A flow at its place in the picture."""

    flow: Flow
    position: int
    """Index among the flows to the same receiver."""
    together: int
    """Number of flows to that receiver."""


def items(view: SnapshotView) -> list[FlowRow]:
    """The flows grouped by receiver, in the order of the tree."""
    rank = {p.process: n for n, p in enumerate(view.snapshot.processes)}
    to: dict[ProcessId, list[Flow]] = defaultdict(list)
    for flow in view.snapshot.flows:
        if view.scope in (None, flow.sender, flow.receiver):
            to[flow.receiver].append(flow)
    rows = []
    for receiver in sorted(to, key=lambda process: rank.get(process, len(rank))):
        flows = sorted(to[receiver], key=lambda flow: rank.get(flow.sender, len(rank)))
        rows += [FlowRow(flow, n, len(flows)) for n, flow in enumerate(flows)]
    return rows


def bracket(position: int, together: int) -> str:
    """The box-drawing characters that join one sender to the receiver."""
    if together == 1:
        return "────▶ "
    middle = (together - 1) // 2
    if position == 0:
        return "──┬─▶ " if middle == 0 else "──┐   "
    if position == together - 1:
        return "──┘   "
    return "──┼─▶ " if position == middle else "──┤   "


def _often(per_s: float | None) -> str:
    """A rate per second; rates below 0.095 keep two digits, so that they are not shown as zero."""
    if per_s is not None and 0 < per_s < 0.95:
        return f"{per_s:.2f}" if per_s < 0.095 else f"{per_s:.1f}"
    return count_text(per_s)


def _row(item: FlowRow, view: SnapshotView) -> Row:
    flow = item.flow
    copied = flow.copied_bytes / flow.bytes if flow.bytes else None
    piece = bracket(item.position, item.together)
    target = view.full_name(flow.receiver) if "▶" in piece else ""
    return Row(
        (flow.sender, flow.receiver),
        (
            name_cell(view.name(flow.sender), "title"),
            cell(_often(flow.tensors_per_s)),
            cell("-" if flow.bytes_per_s is None else bytes_text(flow.bytes_per_s)),
            cell(bytes_text(flow.bytes / flow.tensors) if flow.tensors else "-", "dim"),
            cell(seconds_text(flow.latency_p50_s)),
            cell(seconds_text(flow.latency_p99_s)),
            cell("-" if copied is None else f"{copied:.0%}", _copied_tone(copied)),
            cell(count_text(flow.in_flight)),
            cell(bytes_text(flow.bytes), "dim"),
            line((piece, "accent"), (target, "title")),
        ),
    )


def _copied_tone(copied: float | None) -> Tone:
    return "warning" if copied is not None and copied >= 0.5 else ""


def details(item: FlowRow, view: SnapshotView, width: int) -> tuple[Line, ...]:
    """A sentence about the flow under the cursor."""
    flow = item.flow
    sender, receiver = view.full_name(flow.sender), view.full_name(flow.receiver)
    words = f"{count_text(flow.tensors)} tensors, {bytes_text(flow.bytes)} so far"
    copied = f"{bytes_text(flow.copied_bytes)} of it copied into new shared memory"
    return (
        line((f" {sender} sends to {receiver}", "title"), f"  {words}"),
        cell(f"   {copied}"),
    )


def _empty(view: SnapshotView) -> tuple[str, ...]:
    ready = sum(p.hook.state == "ready" for p in view.snapshot.living())
    if ready < 2:
        which = "only one process" if ready else "no process"
        return (
            f"No flows: sender and receiver need a hook; {which} has one ready.",
            f"To have them: {view.attach_advice}, or call mpwatch.instrument() in the program.",
        )
    return (
        "No tensor has been sent between processes of this job since the hooks were attached.",
        "Batches from workers and tensors in torch.multiprocessing queues appear here.",
    )


PAGE: Page[FlowRow] = Page(
    name="flows",
    title="Flows",
    short="Flows",
    columns=COLUMNS,
    items=items,
    key=lambda item: (item.flow.sender, item.flow.receiver),
    row=_row,
    text=lambda item, view: (
        f"{view.full_name(item.flow.sender)} {view.full_name(item.flow.receiver)}"
    ),
    empty=_empty,
    details=details,
    process=lambda item: item.flow.sender,
    help=(
        "Tensors sent between processes: one line per sender, joined at the receiver.",
        "EACH  mean size of a tensor. Each takes a fixed time to send besides its bytes, so one"
        " large tensor is sent faster than many small ones.",
        "LAT p50, p99  latency: from sharing a tensor to rebuilding it in the receiver.",
        "COPIED  share of the bytes that were copied into new shared memory; reused buffers"
        " avoid that copy.",
        "IN FLIGHT  sent and not yet received.",
    ),
)
