"""The dashboard application: shows snapshots from a source until the user quits."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import ClassVar

from msgspec.structs import replace
from textual import events
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen

from mpwatch.attach.process_actions import ProcessActions
from mpwatch.model.findings import Finding
from mpwatch.model.ids import ProcessId
from mpwatch.model.snapshot import Snapshot
from mpwatch.observe.sources.source import Source
from mpwatch.tui.actions import JumpProvider, ReplayActions
from mpwatch.tui.hook_question import HookQuestion
from mpwatch.tui.screens.base import (
    LEAST_HEIGHT,
    LEAST_WIDTH,
    LiveScreen,
    PageRequested,
    PagesScreen,
    ProcessRequested,
    SnapshotArrived,
    TooSmallScreen,
)
from mpwatch.tui.screens.dashboard import Dashboard, ProcessScreen
from mpwatch.tui.screens.output import is_started_here
from mpwatch.tui.screens.texts import (
    FindingScreen,
    HelpScreen,
    HelpText,
    InjectionScreen,
    KeyHelp,
    column_keys,
)
from mpwatch.tui.termination import Termination
from mpwatch.tui.view_state import ViewState

OUTPUT_HINT = "o shows what the program prints; it is printed here once the dashboard is closed."


class DashboardApp(ReplayActions):
    """Shows a job in a dashboard; every screen draws the same snapshot.

    Attributes:
        dashboard: Its first screen.
    """

    TITLE = "mpwatch"
    CSS_PATH = "dashboard.tcss"
    dashboard: Dashboard
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "pause", "Pause or resume", id="pause"),
        Binding("question_mark", "help", "Help about this screen", key_display="?", id="help"),
        Binding("q", "quit", "Quit", id="quit", priority=False),
    ]

    def on_snapshot_arrived(self, message: SnapshotArrived) -> None:
        """Show the newest snapshot on the active screen."""
        is_shown = self.view_state.arrived(message.snapshot)
        self.consider_asking(message.snapshot)  # first: it may take the question off the top line
        if is_shown:
            self.redraw()

    def on_process_requested(self, message: ProcessRequested) -> None:
        """Open the screen of a process."""
        self.push_screen(ProcessScreen(self.view_state, message.process))

    def on_page_requested(self, message: PageRequested) -> None:
        """Go back to the dashboard and show a page of it."""
        self.open_page(message.digit)

    def on_resize(self, event: events.Resize) -> None:
        """Show a message instead of the screens if the terminal is too small."""
        too_small = event.size.width < LEAST_WIDTH or event.size.height < LEAST_HEIGHT
        is_shown = isinstance(self.screen, TooSmallScreen)
        if too_small and not is_shown:
            self.push_screen(TooSmallScreen())
        elif is_shown and not too_small:
            self.pop_screen()

    # --- actions ---------------------------------------------------------------------------------

    def action_pause(self) -> None:
        """Pause or resume the display."""
        self.view_state.toggle_pause()
        self.redraw()

    def action_help_quit(self) -> None:
        """Quit on ctrl+c, as in other monitors."""
        self.exit()

    def action_help(self) -> None:
        """Show help about the active screen and its keys."""
        screen = self.screen
        if isinstance(screen, PagesScreen):
            page = screen.page_view.page
            keys = [*self._keys(), *column_keys(page.columns)]
            self.push_screen(HelpScreen(HelpText(page.title, page.help, keys)))
        elif isinstance(screen, LiveScreen | InjectionScreen):
            self.push_screen(
                HelpScreen(HelpText(screen.help_title, screen.help_lines, self._keys()))
            )

    def _keys(self) -> list[KeyHelp]:
        """The active key bindings each action once."""
        found: dict[str, tuple[list[str], str]] = {}
        for active in self.screen.active_bindings.values():
            binding = active.binding
            if not binding.description or binding.id is None or binding.id.startswith("table."):
                continue
            if binding.id.startswith(("page.", "lines.")):
                continue
            keys, _ = found.setdefault(binding.id, ([], binding.description))
            keys.append(self.get_key_display(binding))
        return [KeyHelp(" ".join(dict.fromkeys(keys)), words) for keys, words in found.values()]

    def jump_to(self, process: ProcessId) -> None:
        """Show a process in the tree."""
        self._to_dashboard()
        self.run_worker(self.dashboard.jump_to(process), exclusive=True, group="jump")

    def open_finding(self, finding: Finding) -> None:
        """Show a finding in full."""
        self._to_dashboard()
        self.push_screen(FindingScreen(self.view_state, finding))

    def open_page(self, digit: str) -> None:
        """Show a page of the dashboard."""
        self._to_dashboard()
        self.run_worker(self.dashboard.action_page(digit), exclusive=True, group="jump")

    def _to_dashboard(self) -> None:
        while self.screen is not self.dashboard and len(self.screen_stack) > 1:
            self.pop_screen()


class MpwatchApp(DashboardApp):
    """Shows one job from one source.

    Args:
        source: Where snapshots come from; started on mount, stopped before the program ends.
        title: Name of the job until the first snapshot arrives.
        refresh_hz: How often snapshots are expected; shown in the status line.
        readonly: Whether all actions on processes are refused.
        process_actions: Performs actions on processes; tests pass a fake.
        recording: The file the source writes from its start, if it does.
        question: Whether to inject the hook; without it nothing can be injected.
        termination: Ends the dashboard on signals or a lost terminal.
    """

    COMMANDS: ClassVar[set[type[JumpProvider]]] = App.COMMANDS | {JumpProvider}  # type: ignore[assignment]
    ENABLE_COMMAND_PALETTE = True

    def __init__(
        self,
        source: Source,
        *,
        title: str = "",
        refresh_hz: float = 1.0,
        readonly: bool = False,
        process_actions: ProcessActions | None = None,
        recording: str | None = None,
        question: HookQuestion | None = None,
        termination: Termination | None = None,
    ) -> None:
        super().__init__()
        self.animation_level = "none"
        self.process_actions = process_actions or ProcessActions()
        self.view_state = ViewState(
            source, title, refresh_hz, is_readonly=readonly, question=question
        )
        self._termination = termination or Termination()
        self._has_told_output = False
        self.view_state.settings = replace(self.view_state.settings, recording=recording)
        self.dashboard = Dashboard(self.view_state)

    def on_mount(self) -> None:
        """Open the first screen and start the source."""
        self.push_screen(self.dashboard)
        self._termination.started(self)
        source = self.view_state.source
        # Called on the source's thread, where only posting a message is safe.
        source.start(lambda snapshot: self._deliver(SnapshotArrived(snapshot)))

    async def on_event(self, event: events.Event) -> None:
        """Note each key and click: after the first one, enter no longer answers the question."""
        # A forwarded key comes back here, after it may have asked the question again.
        is_first = isinstance(event, events.MouseDown) or (
            isinstance(event, events.Key) and not event.is_forwarded
        )
        await super().on_event(event)
        question = self.view_state.question
        if is_first and question is not None and question.enter_is_yes:
            question.enter_is_yes = False
            if question.is_shown:
                self.redraw()

    def _deliver(self, message: SnapshotArrived) -> None:
        self.post_message(message)

    def on_unmount(self) -> None:
        """Stop the source before the program ends."""
        self.view_state.source.stop()

    def on_snapshot_arrived(self, message: SnapshotArrived) -> None:
        """Check the terminal; Textual calls the handler of the base class as well."""
        self._termination.check_terminal()
        if not self._has_told_output and is_started_here(message.snapshot, os.getpid()):
            self.show_message(OUTPUT_HINT)
        self._has_told_output = True

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Commands of the palette in addition to jumps."""
        yield SystemCommand(
            "view: pause or resume", "Pause or resume the display", self.action_pause
        )
        for digit, page in self.dashboard.pages.items():
            yield SystemCommand(
                f"page: {page.title}",
                page.help[0] if page.help else "",
                partial(self.open_page, digit),
            )
        yield from super().get_system_commands(screen)


def run_dashboard(
    source: Source,
    *,
    title: str,
    refresh_hz: float = 1.0,
    readonly: bool = False,
    recording: str | None = None,
    question: HookQuestion | None = None,
    process_actions: ProcessActions | None = None,
    on_stuck: Callable[[], None] = lambda: None,
    on_closed: Callable[[Snapshot, str | None], None] | None = None,
    needs_terminal: bool = False,
) -> int:
    """Show a job until the user quits, SIGTERM or SIGHUP arrives or the terminal is gone.

    Args:
        source: Not yet started; it is stopped before this returns.
        title: Name of the job until the first snapshot arrives.
        refresh_hz: How often the source samples.
        readonly: Refuse everything that acts on processes.
        recording: The file the source writes from its start, if it does.
        question: Whether to inject the hook; without it nothing can be injected.
        process_actions: Performs actions on processes.
        on_stuck: Called before a dashboard that does not end in time is killed.
        on_closed: Called with the last snapshot of a live job and the file of its recording, once
            the terminal is as before.
        needs_terminal: See `Termination`.

    Returns:
        An exit code: 128 + n after SIGTERM or SIGHUP.
    """
    termination = Termination(on_stuck, needs_terminal=needs_terminal)
    app = MpwatchApp(
        source,
        title=title,
        refresh_hz=refresh_hz,
        readonly=readonly,
        recording=recording,
        question=question,
        process_actions=process_actions,
        termination=termination,
    )
    code = termination.run(app)
    last = app.view_state.newest
    if on_closed is not None and last is not None and source.is_live:
        on_closed(last, app.view_state.settings.recording)
    return code
