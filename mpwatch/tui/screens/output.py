"""The screen of what the job prints: the ends of the files that it writes its output to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message

from mpwatch.collect.process.output import Output, OutputReads
from mpwatch.describe.processes import names_text
from mpwatch.model.samples import FdKind
from mpwatch.model.snapshot import Snapshot
from mpwatch.model.units import bytes_text
from mpwatch.tui.elements.header import header
from mpwatch.tui.elements.page import SnapshotView
from mpwatch.tui.elements.styled_text import Line, cell, line, wrapped
from mpwatch.tui.screens.base import LiveScreen
from mpwatch.tui.view_state import ViewState
from mpwatch.tui.widgets.line_view import LineView, ScrollingLines

NOT_YET = "Reading what the job writes its output to."
NO_OUTPUT = "It is not known what this job writes its output to."
_ELSEWHERE: dict[FdKind, str] = {
    "pipe": "a pipe: only the process that reads it has what was written",
    "socket": "a socket: only the process that reads it has what was written",
}


class OutputArrived(Message, bubble=False):
    """What was read of the output of the job.

    The lines are made where it is read: those of 16 files took the thread of the screen 7 ms.
    """

    def __init__(self, outputs: tuple[Output, ...]) -> None:
        super().__init__()
        self.outputs = outputs
        self.texts = tuple(tuple(cell(f" {text}") for text in each.lines) for each in outputs)


class OutputScreen(LiveScreen):
    """Follows the output of the job, unless it was scrolled up."""

    help_title = "the output of the job"
    help_lines = (
        "What the processes of the job have written to the files that are their standard output"
        " and error; a file of a job that mpwatch run has started is made by mpwatch, and printed"
        " when the dashboard is closed.",
        "The end of each file is read once a second while this screen is open; at its end the text"
        " follows what is written. Long lines go on to the right.",
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,o", "dismiss", "Back", key_display="esc", id="back"),
    ]

    def __init__(
        self,
        view_state: ViewState,
        make_reads: Callable[[Callable[[tuple[Output, ...]], None]], OutputReads] = OutputReads,
    ) -> None:
        super().__init__()
        self.view_state = view_state
        self._reads = make_reads(self._arrived)
        self._arrived_last: OutputArrived | None = None
        self._drawn: tuple[object, ...] = ()
        """What the lines on the screen were made of."""
        self._header = LineView(classes="bar")
        self._text = ScrollingLines(classes="sheet")

    def _arrived(self, outputs: tuple[Output, ...]) -> None:
        """Called on the thread of the reading."""
        self.post_message(OutputArrived(outputs))

    def compose(self) -> ComposeResult:
        """Status line, the output, the keys."""
        yield self._header
        yield self._text
        yield (keys := LineView(classes="bar"))
        keys.show((cell(" esc back   g top   G end   ? help", "dim"),))

    def on_mount(self) -> None:
        """Focus the text."""
        self._text.focus()

    def on_unmount(self) -> None:
        """Close the files."""
        self._reads.close()

    def show_snapshot(self) -> None:
        """Draw the status line, and read what was written since."""
        view = self.view_state.view
        if view is None or not self.size.width:
            return
        self._header.show((header(view.snapshot, self.view_state.settings, self.size.width),))
        if not self.view_state.settings.is_paused:
            self._reads.start(view.snapshot)
        if self._arrived_last is None:
            self._text.show((cell(f" {NOT_YET}", "dim"),))

    def on_output_arrived(self, message: OutputArrived) -> None:
        """Draw what was read."""
        self._arrived_last = message
        self._draw()

    def on_resize(self) -> None:
        """Fit the text to the new width."""
        self.show_snapshot()
        self._draw()

    def _draw(self) -> None:
        view, last = self.view_state.view, self._arrived_last
        if last is None or view is None:
            return
        headings = headings_of(last.outputs, view)
        drawn = (last.outputs, headings, self.size)
        if drawn == self._drawn:
            return  # nothing was written since
        self._drawn = drawn
        text = self._text
        is_at_end = text.scroll_offset.y >= text.max_scroll_y
        text.show(output_lines(last, headings, max(20, self.size.width - 6)))
        if is_at_end:
            text.scroll_end(animate=False)


def output_lines(arrived: OutputArrived, headings: Sequence[str], width: int) -> tuple[Line, ...]:
    """The outputs below each other, those that can be read last: their end is at the bottom.

    Args:
        arrived: What was read.
        headings: Of each output.
        width: In which headings are wrapped.
    """
    lines: list[Line] = []
    parts = zip(arrived.outputs, arrived.texts, headings, strict=True)
    for output, texts, heading in sorted(parts, key=lambda each: bool(each[1])):
        if lines:
            lines.append(cell(""))
        lines += (line(" ", *part) for part in wrapped(heading, width - 1, "title"))
        if output.is_cut:
            lines.append(cell(" (earlier lines are not shown)", "dim"))
        lines += texts
        if output.kind == "file" and not output.lines:
            lines.append(cell(f" {output.problem or 'nothing is written there yet'}", "dim"))
    return tuple(lines) or (cell(f" {NO_OUTPUT}", "dim"),)


def headings_of(outputs: Sequence[Output], view: SnapshotView) -> list[str]:
    """Who writes to each, and what kind of file it is."""
    return [_heading(each, view) for each in outputs]


def _heading(output: Output, view: SnapshotView) -> str:
    names = names_text(view.name(process) for process in output.writers)
    verb = "writes" if len(output.writers) == 1 else "write"
    if output.kind == "file":
        size = f" ({bytes_text(output.size_bytes)})" if output.size_bytes is not None else ""
        return f"{names} {verb} to {output.target}{size}"
    if output.target == "/dev/null":
        return f"{names} {verb} to /dev/null: it is not kept"
    elsewhere = _ELSEWHERE.get(output.kind)
    if elsewhere is None:
        return f"{names} {verb} to {output.target}: what was written there cannot be read again"
    return f"{names} {verb} to {elsewhere}"


def is_started_here(snapshot: Snapshot, own_pid: int) -> bool:
    """Whether the job is a child of this process, which then keeps its output."""
    root = snapshot.get(snapshot.root)
    return root is not None and root.sample.parent_pid == own_pid
