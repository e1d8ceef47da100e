"""Process actions: choose, confirm, show the result."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen

from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Process
from mpwatch.tui.elements.styled_text import cell, line
from mpwatch.tui.process_actions import (
    ACTION_COLUMNS,
    ActionRefused,
    OfferedAction,
    ProcessActions,
    action_row,
    confirmation,
    offered_actions,
    stacks_text,
    write_new,
)
from mpwatch.tui.screens.base import LiveScreen
from mpwatch.tui.view_state import ViewState
from mpwatch.tui.widgets.line_view import LineView
from mpwatch.tui.widgets.live_table import LiveTable

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
