"""Where one process spends its time: sampled stacks as a flame graph and as a list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rich.cells import set_cell_size

from mpwatch.describe.frames import place_words
from mpwatch.model.samples import Frame
from mpwatch.model.units import seconds_text
from mpwatch.tui.elements.page import Page, SnapshotView
from mpwatch.tui.elements.styled_text import Line, Row, ScreenColumn, Span, Tone, cell, gauge, line

DEEPEST = 14
"""Lines of the flame graph; deeper calls are in the list only."""


class Sampled(NamedTuple):
    """One stack of the followed process."""

    at_s: float
    frames: tuple[Frame, ...]
    """Innermost first."""


class ProgramFunction(NamedTuple):
    """A function, independent of the sampled line."""

    function: str
    file: str


@dataclass(slots=True)
class CallNode:
    """A node of the call tree: a function and the number of samples on this path."""

    place: ProgramFunction
    count: int = 0
    below: dict[ProgramFunction, CallNode] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FunctionShare:
    """A function with its share of the samples."""

    place: ProgramFunction
    line: int
    """The most frequent line."""
    own: int
    """Samples with this function innermost."""
    total: int
    """Samples with this function anywhere in the stack."""
    all_samples: int


def call_tree(samples: Sequence[Sampled]) -> CallNode:
    """The call tree, outermost call at the root."""
    root = CallNode(ProgramFunction("all", ""), len(samples))
    for sample in samples:
        at = root
        for frame in reversed(sample.frames):
            place = ProgramFunction(frame.function, frame.file)
            branch = at.below.get(place)
            if branch is None:
                branch = at.below[place] = CallNode(place)
            branch.count += 1
            at = branch
    return root


def picture(samples: Sequence[Sampled], width: int) -> tuple[Line, ...]:
    """Calls as blocks, outermost on top, as wide as their share of the samples."""
    if not samples or width < 20:
        return ()
    lines: list[Line] = []
    layer = [(_without_shared_root(call_tree(samples)), 0, width)]
    while layer and len(lines) < DEEPEST:
        lines.append(_layer_line(layer, len(lines), len(samples)))
        layer = [
            block
            for branch, start, size in layer
            for block in _split(list(branch.below.values()), start, size, branch.count)
        ]
    return tuple(lines)


TRUNK_KEPT = 3


def _without_shared_root(root: CallNode) -> CallNode:
    """The tree without the outermost calls that all samples share.

    The innermost few of the shared calls stay, as context for the first branch.
    """
    trunk = [root]
    while len(trunk[-1].below) == 1:
        (only,) = trunk[-1].below.values()
        if only.count != root.count:
            break
        trunk.append(only)
    return trunk[max(0, len(trunk) - TRUNK_KEPT)]


def _split(
    branches: Sequence[CallNode], start: int, size: int, whole: int
) -> list[tuple[CallNode, int, int]]:
    """Blocks side by side, the largest first; those too narrow to draw are omitted."""
    blocks = []
    at = start
    for branch in sorted(branches, key=lambda b: -b.count):
        cells = round(size * branch.count / whole)
        cells = min(cells, start + size - at)
        if cells >= 2:
            blocks.append((branch, at, cells))
            at += cells
    return blocks


def _layer_line(layer: Sequence[tuple[CallNode, int, int]], depth: int, everything: int) -> Line:
    spans: list[Span] = []
    at = 0
    for number, (branch, start, size) in enumerate(layer):
        if start > at:
            spans.append(Span(" " * (start - at)))
        share = f" {branch.count / everything:.0%}"
        # The edge of a block must be visible without colours.
        edge = "│" if number else " "
        name = f"{edge}{branch.place.function}{share}"
        tone: Tone = "block" if (number + depth) % 2 else "block-other"
        spans.append(Span(set_cell_size(name, size - 1) + " ", tone))
        at = start + size
    return tuple(spans)


def hottest(samples: Sequence[Sampled]) -> list[FunctionShare]:
    """Functions by number of samples as innermost call, then by number of samples at all."""
    own: Counter[ProgramFunction] = Counter()
    total: Counter[ProgramFunction] = Counter()
    lines: dict[ProgramFunction, Counter[int]] = {}
    for sample in samples:
        for depth, frame in enumerate(sample.frames):
            place = ProgramFunction(frame.function, frame.file)
            own[place] += depth == 0
            lines.setdefault(place, Counter())[frame.line] += 1
        total.update({ProgramFunction(frame.function, frame.file) for frame in sample.frames})
    found = [
        FunctionShare(place, lines[place].most_common(1)[0][0], own[place], count, len(samples))
        for place, count in total.items()
    ]
    return sorted(found, key=lambda item: (-item.own, -item.total))


COLUMNS = (
    ScreenColumn("OWN", 5, align="right", keep=9),
    ScreenColumn("", 12, keep=5),
    ScreenColumn("TOTAL", 5, align="right", keep=8),
    ScreenColumn("FUNCTION", 26, keep=9, most=34),
    ScreenColumn("WHERE", 24, keep=7, grows=True),
)


def _row(item: FunctionShare, view: SnapshotView) -> Row:
    own = item.own / item.all_samples
    return Row(
        item.place,
        (
            cell(f"{own:.0%}"),
            gauge(own, 12),
            cell(f"{item.total / item.all_samples:.0%}"),
            cell(item.place.function, "title" if item.own else ""),
            cell(place_words(item.place.file, item.line), "accent"),
        ),
    )


def _details(item: FunctionShare, view: SnapshotView, width: int) -> tuple[Line, ...]:
    words = f"  innermost in {item.own} and anywhere in {item.total} of {item.all_samples} samples"
    return (
        line((f" {item.place.function}", "title"), words),
        cell(f"   {item.place.file}:{item.line}", "dim"),
    )


def page(samples: Callable[[], Sequence[Sampled]]) -> Page[FunctionShare]:
    """The flame page; `samples` is called for each drawing, since sampling continues."""

    def above(view: SnapshotView, width: int) -> tuple[Line, ...]:
        taken = samples()
        if not taken:
            return ()
        over = seconds_text(taken[-1].at_s - taken[0].at_s)
        head = cell(
            f" {len(taken)} samples of its main thread over {over}, outermost call on top", "dim"
        )
        return (head, *picture(taken, width))

    return Page(
        name="flame",
        title="Flame",
        short="Flame",
        columns=COLUMNS,
        items=lambda view: hottest(samples()),
        key=lambda item: item.place,
        row=_row,
        text=lambda item, view: f"{item.place.function} {item.place.file}",
        empty=lambda view: (
            "No samples yet: they are taken twice a second while this process is followed.",
            "f switches following on and off; an ended or stopped process has none.",
        ),
        above=above,
        details=_details,
        sorts={
            "OWN": lambda item: float(item.own),
            "TOTAL": lambda item: float(item.total),
            "FUNCTION": lambda item: item.place.function,
        },
        help=(
            "Where the main thread of this process was, in stacks taken twice a second.",
            "Flame graph: each block is a call, as wide as its share of the samples, above its"
            " callees. Outermost calls that all samples share are omitted.",
            "OWN  innermost; TOTAL  anywhere in the stack. Waiting time is included.",
        ),
    )
