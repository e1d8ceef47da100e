"""Actions on a process: which are offered, and their screens (done in `attach.process_actions`)."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen

from mpwatch.attach.process_actions import ActionRefused, ProcessActions
from mpwatch.describe.frames import frame_words
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.model.units import count_text
from mpwatch.observe.sources.source import StopInjecting
from mpwatch.tui.elements.styled_text import Row, ScreenColumn, Tone, cell, line, text_of
from mpwatch.tui.pages.stacks.threads import stack_head
from mpwatch.tui.screens.base import LiveScreen
from mpwatch.tui.view_state import ViewState
from mpwatch.tui.widgets.line_view import LineView
from mpwatch.tui.widgets.live_table import LiveTable


def stacks_text(snapshot: Snapshot) -> str:
    """All stacks of a snapshot as text for a file."""
    return "\n".join(part for p in snapshot.living() for part in _process_text(p, snapshot.at_s))


def _process_text(process: Process, at_s: float) -> list[str]:
    lines = [f"{process.pid} {process.label}: {process.doing}"]
    for thread in process.threads:
        lines.append(f"  {text_of(stack_head(thread, at_s)).strip()}")
        for frame in thread.shown_stack:
            lines.append(f"    {frame_words(frame)}  ({frame.file})")
            lines += [f"        {name} = {value}" for name, value in frame.locals]
    return [*lines, ""]


def write_new(path: str, content: str) -> str:
    """Create a file, readable by its user only; returns its path.

    Raises:
        ActionRefused: It exists, or cannot be written.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            out.write(content)
    except OSError as error:
        raise ActionRefused(f"{path} cannot be written: {error.strerror}.") from None
    return path


ActionKind: TypeAlias = Literal["signal", "limit", "stacks", "record", "detach"]

ACTION_COLUMNS = (
    ScreenColumn("ACTION", 26, keep=9),
    ScreenColumn("EFFECT", 40, keep=8, grows=True),
)


@dataclass(frozen=True, slots=True)
class OfferedAction:
    """An action that is offered."""

    kind: ActionKind
    title: str
    words: str
    """The effect of the action, shown before it is confirmed: 50 cells have room on 80."""
    number: int = 0
    """Signal number."""
    tone: Tone = ""
    needs_confirming: bool = True

    @property
    def key(self) -> tuple[str, int]:
        """Identifies the choice."""
        return (self.kind, self.number)


_SIGNALS: tuple[tuple[signal.Signals, str, Tone], ...] = (
    (signal.SIGINT, "like ctrl-c: KeyboardInterrupt in the main thread", ""),
    (signal.SIGTERM, "asks it to exit, unsaved if it has no handler", "warning"),
    (signal.SIGKILL, "kills it; named segments and held locks stay", "critical"),
    (signal.SIGSTOP, "stops it until SIGCONT; what waits for it stalls", "warning"),
    (signal.SIGCONT, "continues a stopped process", ""),
)


def offered_actions(
    process: Process, *, is_live: bool, recording: str | None, has_hooks: bool
) -> list[OfferedAction]:
    """The actions offered for a process; in a replay only writing files."""
    found = [
        OfferedAction(
            "stacks",
            "write all stacks to a file",
            "all that were last taken, to a new file here",
            needs_confirming=False,
        )
    ]
    if not is_live:
        return found
    if recording is None:
        words = "samples and events from now on, for a replay"
        found.append(OfferedAction("record", "start recording", words, needs_confirming=False))
    else:
        found.append(OfferedAction("record", "stop recording", f"closes {recording}"))
    if has_hooks:
        words = "from all processes; the job continues"
        found.append(OfferedAction("detach", "detach the hook", words))
    if process.is_gone:
        return found
    fds = process.sample.fds
    if fds and fds.soft_limit and fds.hard_limit and fds.soft_limit < fds.hard_limit:
        limits = f"from {count_text(fds.soft_limit)} to {count_text(fds.hard_limit)}, while it runs"
        found.append(OfferedAction("limit", "raise descriptor limit", limits))
    found += [
        OfferedAction("signal", f"send {number.name}", words, int(number), tone)
        for number, words, tone in _SIGNALS
    ]
    return found


def action_row(choice: OfferedAction) -> Row:
    """One line of the list."""
    return Row(choice.key, (cell(choice.title, choice.tone or "title"), cell(choice.words)))


def confirmation(choice: OfferedAction, process: Process) -> str:
    """The question that confirms an action."""
    if choice.kind in ("detach", "record"):
        return f"{choice.title[0].upper()}{choice.title[1:]}?"
    return f"{choice.title[0].upper()}{choice.title[1:]}: {process.label}, pid {process.pid}?"


_HOOKED = ("ready", "silent", "pending")


class ConfirmScreen(ModalScreen[bool]):
    """A question; only `y` means yes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes", id="confirm.yes"),
        Binding("n,escape,q,enter", "answer(False)", "No", id="confirm.no"),
    ]
    DEFAULT_CSS = """
    ConfirmScreen { align: center middle; }
    ConfirmScreen > Vertical { width: 72; max-width: 90%; height: auto; border: round $warning; }
    ConfirmScreen LineView { height: auto; padding: 1 2; }
    """

    def __init__(self, asked: str, words: str) -> None:
        super().__init__()
        self._asked = asked
        self._words = words

    def compose(self) -> ComposeResult:
        """The question, the effect, the answers."""
        with Vertical():
            yield (text := LineView())
            text.show(
                (
                    cell(self._asked, "title"),
                    cell(self._words, "dim"),
                    cell(""),
                    line(("y", "accent"), " yes    ", ("n", "accent"), " no, go back"),
                )
            )

    def action_answer(self, yes: bool) -> None:
        """Close with the answer."""
        self.dismiss(yes)


class ProcessActionsScreen(LiveScreen):
    """The actions for one process; each change of the process is confirmed."""

    help_title = "process actions"
    help_lines = (
        "Signals, limits and detaching are confirmed with y; with --readonly nothing is offered.",
        "A signal is sent to this process only, never to another one that reused its pid.",
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Back", key_display="esc", id="back"),
    ]

    def __init__(
        self,
        view_state: ViewState,
        process_id: ProcessId,
        process_actions: ProcessActions,
        *,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        self.view_state = view_state
        self.process_id = process_id
        self._process_actions = process_actions
        self._wall_clock = wall_clock
        self._head = LineView(classes="bar")
        self._table: LiveTable[OfferedAction] = LiveTable(ACTION_COLUMNS, lambda choice: choice.key)

    def compose(self) -> ComposeResult:
        """The process, the choices, the keys."""
        yield self._head
        yield self._table
        yield (keys := LineView(classes="bar"))
        keys.show((cell(" enter choose   esc back   y confirms each change of a process", "dim"),))

    def on_mount(self) -> None:
        """Focus the list."""
        self._table.focus()

    def show_snapshot(self) -> None:
        """Draw the current choices."""
        process = self._process()
        if process is None:
            return
        self._head.show(
            (line(" ", (f"{process.pid} {process.label}", "title"), f"  {process.doing}"),)
        )
        found = offered_actions(
            process,
            is_live=self.view_state.source.is_live,
            recording=self.view_state.settings.recording,
            has_hooks=any(p.hook.state in _HOOKED for p in self._living()),
        )
        self._table.show(found, action_row)

    def choose(self, key: tuple[str, int]) -> bool:
        """Put the cursor on a choice; False if it is not offered."""
        return self._table.move_to(key)

    def _living(self) -> Sequence[Process]:
        view = self.view_state.view
        return view.snapshot.living() if view else ()

    def _process(self) -> Process | None:
        view = self.view_state.view
        return view.by_id.get(self.process_id) if view else None

    def on_live_table_chosen(self, event: LiveTable.Chosen) -> None:
        """Ask for confirmation before any change of a process."""
        event.stop()
        choice, process = self._table.current, self._process()
        if choice is None or process is None:
            return
        if not choice.needs_confirming:
            self._do(choice, process)
            return

        def answered(yes: bool | None) -> None:
            if yes:
                self._do(choice, process)

        self.app.push_screen(ConfirmScreen(confirmation(choice, process), choice.words), answered)

    def _do(self, choice: OfferedAction, process: Process) -> None:
        """Run the action and show the result; detaching is slow and runs on a thread."""
        if choice.kind == "detach":
            self.run_worker(self._detach_hooks, thread=True, exclusive=True, group="detach")
            return
        try:
            message = self._perform(choice, process)
        except ActionRefused as refusal:
            self.notify(str(refusal), severity="error", timeout=8, markup=False)
            return
        self.notify(message, timeout=8, markup=False)
        self.show_snapshot()

    def _perform(self, choice: OfferedAction, process: Process) -> str:
        match choice.kind:
            case "signal":
                return self._process_actions.signal(process.process, choice.number)
            case "limit":
                return self._process_actions.raise_descriptors(process.process)
            case "stacks":
                return self._write_stacks()
            case _:
                return self._switch_recording()

    def _detach_hooks(self) -> None:
        self.view_state.ask(StopInjecting())
        message = self._process_actions.detach([process.sample for process in self._living()])
        self.app.call_from_thread(self.notify, message, timeout=8, markup=False)

    def _write_stacks(self) -> str:
        view = self.view_state.view
        assert view is not None
        path = self._file_name("stacks", "txt")
        return f"Stacks were written to {write_new(path, stacks_text(view.snapshot))}."

    def _switch_recording(self) -> str:
        path = None if self.view_state.settings.recording else self._file_name("recording", "mpw")
        problem = self.view_state.record(path)
        if problem is not None:
            raise ActionRefused(problem)
        return f"Recording into {path}." if path else "The recording is closed."

    def _file_name(self, what: str, ending: str) -> str:
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(self._wall_clock()))
        return f"mpwatch-{what}-{self.process_id.pid}-{stamp}.{ending}"
