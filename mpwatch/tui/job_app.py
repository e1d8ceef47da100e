"""The dashboard of a job on several machines: nodes and ranks, and the dashboard of each node."""

from __future__ import annotations

import time
from dataclasses import replace

from textual.binding import Binding
from textual.message import Message

from mpwatch.model.snapshot import Snapshot
from mpwatch.nodes.head.view import SILENT_S
from mpwatch.nodes.head.view_source import NodeSource
from mpwatch.nodes.job_source import JobSource, JobState
from mpwatch.tui.actions import HookActions, JobActions, ReplayActions, StackActions
from mpwatch.tui.app import DashboardApp
from mpwatch.tui.pages.job import silence_of
from mpwatch.tui.process_actions import ProcessActions
from mpwatch.tui.screens.base import SnapshotArrived
from mpwatch.tui.screens.dashboard import ProcessScreen
from mpwatch.tui.screens.job import JobFindingsScreen, JobRequested, NodeDashboard, NodesScreen
from mpwatch.tui.screens.texts import FindingScreen
from mpwatch.tui.termination import Termination
from mpwatch.tui.view_state import ViewState

_OF_A_JOB = frozenset(
    binding.action.partition("(")[0]
    for actions in (StackActions, JobActions, HookActions, ReplayActions, DashboardApp)
    for binding in actions.BINDINGS
    if isinstance(binding, Binding)
) - {"help", "quit"}
"""Actions that need the dashboard of a job."""


class StateArrived(Message, bubble=False):
    """A new state of the job; it replaces an older one that is still queued."""

    def __init__(self, state: JobState) -> None:
        super().__init__()
        self.state = state

    def can_replace(self, message: Message) -> bool:
        """Replace an older queued state."""
        return isinstance(message, StateArrived)


class NodeSnapshotArrived(Message, bubble=False):
    """A new snapshot of an opened job; it replaces an older one that is still queued."""

    def __init__(self, source: NodeSource, snapshot: Snapshot) -> None:
        super().__init__()
        self.source = source
        self.snapshot = snapshot

    def can_replace(self, message: Message) -> bool:
        """Replace an older queued snapshot."""
        return isinstance(message, NodeSnapshotArrived)


class RequestRefused(Message, bubble=False):
    """A node does not do what was asked for."""

    def __init__(self, words: str) -> None:
        super().__init__()
        self.words = words


class JobApp(DashboardApp):
    """Shows the nodes of a job, and the job of one node in the ordinary dashboard.

    Args:
        source: Not yet started; it is stopped at the end.
        spec: The name of the job.
        termination: Ends the dashboard on signals or a lost terminal.
    """

    ENABLE_COMMAND_PALETTE = False
    dashboard: NodeDashboard

    def __init__(
        self, source: JobSource, spec: str, termination: Termination | None = None
    ) -> None:
        super().__init__()
        self._termination = termination
        self.animation_level = "none"
        self.process_actions = ProcessActions()
        self.state = JobState(spec)
        self.source = source
        self.nodes_screen = NodesScreen(source, spec)
        self.opened: NodeSource | None = None
        self._wanted: JobRequested | None = None

    def on_mount(self) -> None:
        """Start the agents."""
        self.push_screen(self.nodes_screen)
        if self._termination is not None:
            self._termination.started(self)
        self.source.start(lambda state: self._post(StateArrived(state)))

    def _post(self, message: Message) -> None:
        self.post_message(message)

    def on_unmount(self) -> None:
        """End the agents."""
        if self.opened is not None:
            self.opened.stop()
        self.source.stop()

    def on_state_arrived(self, message: StateArrived) -> None:
        """Show the newest state; nothing once the screens have gone, while the app ends."""
        if not self.screen_stack:
            return
        if self._termination is not None:
            self._termination.check_terminal()
        self.state = message.state
        self.nodes_screen.show(self.state)
        if isinstance(self.screen, JobFindingsScreen):
            self.screen.show(self.state)
        if self.opened is not None:
            self._show_silence(self.opened)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable what needs the dashboard of a job while none is open."""
        if self.opened is None and action in _OF_A_JOB:
            return False
        return super().check_action(action, parameters)

    # --- the job of one node ---------------------------------------------------------------------

    def on_job_requested(self, message: JobRequested) -> None:
        """Open the dashboard of a job on a node."""
        source = self.source.open(message.node, message.pid)
        if isinstance(source, str):
            self.show_message(source, failed=True)
            return
        self.opened = source
        self._wanted = message
        self.view_state = ViewState(source, message.node, is_readonly=True, node=message.node)
        self.dashboard = NodeDashboard(self.view_state)
        self.push_screen(self.dashboard, lambda _: self._close())
        source.refused = lambda words: self._post(RequestRefused(words))
        source.start(lambda snapshot: self._post(NodeSnapshotArrived(source, snapshot)))
        self._show_silence(source)

    def _close(self) -> None:
        """Close the job of a node, which then sends nothing more of it."""
        if self.opened is not None:
            self.opened.stop()
            self.opened = None

    def on_node_snapshot_arrived(self, message: NodeSnapshotArrived) -> None:
        """Show a snapshot of the job that is open; the process that was asked for at first."""
        if message.source is not self.opened or not self.screen_stack:
            return
        self._show_silence(message.source)
        self.on_snapshot_arrived(SnapshotArrived(message.snapshot))
        wanted, self._wanted = self._wanted, None
        if wanted is not None:
            self._show_wanted(wanted, message.snapshot)

    def _show_wanted(self, wanted: JobRequested, snapshot: Snapshot) -> None:
        """Show the finding or the process for which a job was opened, if it is there."""
        for finding in snapshot.findings:
            is_about = finding.process is None or finding.process.pid == wanted.pid
            if finding.rule == wanted.rule and (is_about or not wanted.is_process):
                self.push_screen(FindingScreen(self.view_state, finding))
                return
        for process in snapshot.processes:
            if wanted.is_process and process.pid == wanted.pid:
                self.push_screen(ProcessScreen(self.view_state, process.process))
                return

    def on_request_refused(self, message: RequestRefused) -> None:
        """Say why a node does not do what was asked for."""
        self.show_message(message.words, failed=True)

    def _show_silence(self, source: NodeSource) -> None:
        """Say on all screens why the node sends nothing, and when it does again."""
        view = next((each for each in self.state.nodes if each.name == source.node), None)
        shown = self.view_state.view
        is_ended = shown is not None and shown.snapshot.mode == "ended"
        age_s = 0.0 if is_ended else time.monotonic() - source.arrived_s
        silence = silence_of(view, source.problem, age_s, SILENT_S)
        before = self.view_state.settings
        self.view_state.settings = replace(before, silence=silence.words, skipped=source.skipped)
        if silence.words != before.silence:
            self.redraw()
        self.dashboard.explain(silence.sentence, self.state.findings)


def run_job(source: JobSource, spec: str) -> int:
    """Show a job until the user quits, SIGTERM or SIGHUP arrives or the terminal is gone.

    Returns:
        An exit code: 128 + n after SIGTERM or SIGHUP.
    """
    termination = Termination()
    app = JobApp(source, spec, termination)
    with termination.watching():
        app.run()
    return termination.exit_code or app.return_code or 0
