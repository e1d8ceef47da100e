"""The dashboard of a job on several machines: nodes, ranks, findings, and each node's job."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar

from msgspec.structs import replace
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widget import Widget

from mpwatch.attach.process_actions import ProcessActions
from mpwatch.model.findings import JobFinding
from mpwatch.model.snapshot import Snapshot
from mpwatch.nodes.across.ranks import PlacedRank
from mpwatch.nodes.head.node import SILENT_S
from mpwatch.nodes.job_source import JobSource, JobState, NodeSource
from mpwatch.observe.sources.replay import FASTEST, SLOWEST
from mpwatch.observe.sources.source import Pause, Seek, SetSpeed
from mpwatch.tui.actions import HookActions, JobActions, ReplayActions, StackActions
from mpwatch.tui.app import DashboardApp
from mpwatch.tui.elements.styled_text import Line, cell, line
from mpwatch.tui.pages import job
from mpwatch.tui.pages.job import NamedFinding, NodeGroup, silence_of
from mpwatch.tui.screens.base import HINTS, LiveScreen, SnapshotArrived
from mpwatch.tui.screens.dashboard import Dashboard, ProcessScreen
from mpwatch.tui.screens.texts import FindingScreen
from mpwatch.tui.termination import Termination
from mpwatch.tui.view_state import SEEK_S, AskedPlayback, ViewState
from mpwatch.tui.widgets.line_view import LineView, ScrollingLines
from mpwatch.tui.widgets.live_table import LiveTable


class JobRequested(Message):
    """A request to open the dashboard of a job on a node.

    Attributes:
        node: The node.
        pid: A process of the job.
        is_process: Whether this process is to be shown first.
        rule: The rule of the finding to be shown first, if the node has it.
    """

    def __init__(self, node: str, pid: int, *, is_process: bool, rule: str = "") -> None:
        super().__init__()
        self.node = node
        self.pid = pid
        self.is_process = is_process
        self.rule = rule


class NodesScreen(LiveScreen):
    """Two tables, of which one is shown: nodes and ranks."""

    help_title = "a job on several machines"
    help_lines = (
        "nodes     what each node does; those that do the same are one row: node-0 +39 are 40"
        " nodes. enter opens the dashboard of the node's job, with all"
        " pages; of a row of several nodes, or of a node with several jobs, their ranks.",
        "MEM       used share of what limits the memory of the job: its cgroup, or the machine;"
        " SHM of /dev/shm, FDS and MAPS of the process that is closest to its limit.",
        "ranks     those that findings name first, then by number. enter opens the process.",
        "STILL     how long a rank has made no progress. WAITS is the part of its time that it"
        " waits in collectives, in all its last steps: the slowest rank waits least. COLL is the"
        " number of its collective.",
        "silent    nothing was received for ten seconds; ended: the agent or the connection"
        " to it has ended, and is started again.",
        "A node that is opened sends its readings only until it is closed; skipped counts those"
        " that it made faster than they were taken. Nothing is injected.",
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1", "page('nodes')", "Nodes", id="job.nodes"),
        Binding("2", "page('ranks')", "Ranks", id="job.ranks"),
        Binding("r", "ranks_here", "Ranks of the node under the cursor", id="job.ranks_here"),
        Binding("f", "findings", "Findings in full", id="job.findings"),
        Binding("space", "pause", "Replay: pause or resume", id="job.pause"),
        Binding("right_square_bracket", "seek(1)", "Replay: 10 s forward", id="job.forward"),
        Binding("left_square_bracket", "seek(-1)", "Replay: 10 s back", id="job.backward"),
        Binding("plus,equals_sign", "speed(2)", "Replay: faster", id="job.faster"),
        Binding("minus", "speed(0.5)", "Replay: slower", id="job.slower"),
        Binding("escape", "show_nodes", "Back", key_display="esc", id="job.back"),
    ]

    def __init__(self, source: JobSource, spec: str) -> None:
        super().__init__()
        self.state = JobState(spec)
        self._source = source
        self._playback = AskedPlayback()
        self._page = "nodes"
        self._only: frozenset[str] | None = None
        self._head_line = LineView(classes="bar")
        self._finding_lines = LineView()
        self._node_table: LiveTable[NodeGroup] = LiveTable(
            job.NODE_COLUMNS, lambda group: group.nodes[0].name, id="nodes"
        )
        self._rank_table: LiveTable[PlacedRank] = LiveTable(
            job.RANK_COLUMNS, job.rank_key, id="ranks"
        )
        self._detail_lines = LineView(classes="details")
        self._key_lines = LineView(classes="bar")

    def compose(self) -> ComposeResult:
        """Head line, findings, one of the tables, details, keys."""
        yield self._head_line
        yield self._finding_lines
        yield self._node_table
        yield self._rank_table
        yield self._detail_lines
        yield self._key_lines

    def on_mount(self) -> None:
        """Show the nodes."""
        self._detail_lines.styles.height = 2
        self._open("nodes")

    # --- drawing ---------------------------------------------------------------------------------

    def show(self, state: JobState) -> None:
        """Show a newer state; while another screen is shown, later."""
        if state.playback is not None:
            state = replace(state, playback=self._playback.of(state.playback))
        self.state = state
        if self.is_current:
            self.show_snapshot()

    def show_snapshot(self) -> None:
        """Draw everything from the newest state."""
        state, width = self.state, self.size.width
        self._head_line.show((job.top_line(state, width),))
        lines = job.finding_lines(state, width)
        self._finding_lines.display = bool(lines)
        self._finding_lines.show(lines)
        # Only the table on screen: a job of 1,000 nodes has 64,000 ranks.
        if self._page == "nodes":
            self._node_table.show(job.node_groups(state), job.node_row)
        else:
            self._rank_table.show(
                job.ranks_of(state, self._only), lambda rank: job.rank_row(rank, state)
            )
        self._draw_details()

    def _draw_details(self) -> None:
        width = self.size.width
        if self._page == "nodes":
            self._detail_lines.show(job.node_details(self._node_table.current, width))
        else:
            self._detail_lines.show(job.rank_details(self._rank_table.current, width))
        self._key_lines.show((self._key_line(),))

    def _key_line(self) -> Line:
        """The pages, the one shown marked, and the keys."""
        keys = "  enter open   f findings   ? help   q quit"
        if self._page == "ranks":
            keys = "  enter open   f findings   esc nodes   ? help   q quit"
        if self.state.playback is not None:
            keys = "  space pause   [ ] 10 s   + - speed   f findings   esc back   q quit"
        only = "" if self._only is None else f" of {', '.join(sorted(self._only)[:2])}"
        room = max(0, self.size.width - len(" 1 nodes  2 ranks ") - len(keys))
        only = only if len(only) <= room else only[: room - 1] + "…" if room > 5 else ""
        pages = [
            (f" {digit} {name}{only if name == 'ranks' else ''} ", name == self._page)
            for digit, name in (("1", "nodes"), ("2", "ranks"))
        ]
        return line(*((text, "chosen" if is_on else "dim") for text, is_on in pages), (keys, "dim"))

    def on_resize(self) -> None:
        """Cut the lines to the new width."""
        self.show_snapshot()

    def _open(self, page: str) -> None:
        self._page = page
        self._node_table.display = page == "nodes"
        self._rank_table.display = page == "ranks"
        (self._node_table if page == "nodes" else self._rank_table).focus()
        self.show_snapshot()

    # --- actions ---------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Enable the keys of a replay only in a replay."""
        if action in ("pause", "seek", "speed"):
            return self.state.playback is not None
        return super().check_action(action, parameters)

    def action_page(self, page: str) -> None:
        """Open a page for all nodes."""
        self._only = None
        self._open(page)

    def action_show_nodes(self) -> None:
        """Go back from the ranks to the nodes."""
        self.action_page("nodes")

    def action_ranks_here(self) -> None:
        """Show the ranks of the node under the cursor, or of the nodes of its row."""
        group = self._node_table.current
        if self._page == "nodes" and group is not None:
            self._only = group.names
            self._open("ranks")

    def action_pause(self) -> None:
        """Pause or resume a replay."""
        if (now := self.state.playback) is not None:
            self._play(Pause(not now.is_paused))

    def action_seek(self, direction: int) -> None:
        """Move a replay by ten seconds."""
        if (now := self.state.playback) is not None:
            self._play(Seek(max(0.0, min(now.length_s, now.at_s + direction * SEEK_S))))

    def action_speed(self, factor: float) -> None:
        """Play faster or slower."""
        if (now := self.state.playback) is not None:
            self._play(SetSpeed(max(SLOWEST, min(FASTEST, now.speed * factor))))

    def _play(self, command: Pause | Seek | SetSpeed) -> None:
        """Control a replay. The next key counts from there, before the source has delivered it."""
        if (now := self.state.playback) is not None:
            self._playback.note(command, now)
            self.state = replace(self.state, playback=self._playback.of(now))
        self._source.control(command)

    def action_findings(self) -> None:
        """Show all findings in full."""
        self.app.push_screen(JobFindingsScreen(self.state))

    def on_live_table_moved(self, message: LiveTable.Moved) -> None:
        """Describe the row under the cursor."""
        self._draw_details()

    def on_live_table_chosen(self, message: LiveTable.Chosen) -> None:
        """Open the only job of a node, or the process of a rank; else the ranks to choose from."""
        rank = self._rank_table.current
        if self._page == "ranks":
            if rank is not None:
                self.post_message(JobRequested(rank.view.name, rank.row.pid, is_process=True))
            return
        group = self._node_table.current
        root = job.only_job(group) if self.state.playback is None else None
        if group is not None and root is not None:
            self.post_message(JobRequested(group.nodes[0].name, root, is_process=False))
        elif group is not None and job.has_ranks(group):
            self.action_ranks_here()
        elif group is not None:
            self.notify(job.why_not_opened(group), timeout=6, markup=False)


class JobFindingsScreen(LiveScreen):
    """The findings of the job and of its nodes; `enter` opens the node and process of one."""

    help_title = "findings of a job on several machines"
    help_lines = (
        "First those of the job as a whole, then those of each node, worst first.",
        "enter opens the node that a finding names, at the finding or at its process; esc leads"
        " back here. The evidence of a node's own finding is on the node.",
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f", "dismiss", "Back", key_display="esc", id="back"),
    ]

    def __init__(self, state: JobState) -> None:
        super().__init__()
        self._state = state
        self._table: LiveTable[NamedFinding] = LiveTable(
            job.FINDING_COLUMNS, lambda item: item.key, id="job-findings"
        )
        self._details = ScrollingLines(classes="details")
        self._keys = LineView(classes="bar")

    def compose(self) -> ComposeResult:
        """The list, the finding under the cursor in full, the keys."""
        yield self._table
        yield self._details
        yield self._keys

    def on_mount(self) -> None:
        """Focus the list."""
        self._keys.show((cell(" enter open   tab scroll the text   ? help   esc back", "dim"),))
        self._table.focus()

    def on_resize(self) -> None:
        """Give the text most of the screen."""
        self._details.styles.height = round(self.size.height * 0.6)
        self.show_snapshot()

    def show(self, state: JobState) -> None:
        """Show a newer state."""
        self._state = state
        self.show_snapshot()

    def show_snapshot(self) -> None:
        """Draw the list and the finding under the cursor."""
        self._table.show(job.named_findings(self._state), job.finding_row)
        self._draw_details(is_new=False)

    def _draw_details(self, *, is_new: bool) -> None:
        width = max(20, self.size.width - 2)
        self._details.show(
            job.finding_details(self._table.current, self._state, width), is_new=is_new
        )

    def on_live_table_moved(self, message: LiveTable.Moved) -> None:
        """Show the finding under the cursor."""
        self._draw_details(is_new=True)

    def on_live_table_chosen(self, message: LiveTable.Chosen) -> None:
        """Open what the finding names."""
        item = self._table.current
        if item is None or item.node is None:
            return
        pid = item.pid if item.pid is not None else job.root_on(self._state, item.node)
        if pid is None:
            self.notify(f"Nothing of {item.node} can be opened.", timeout=6, markup=False)
            return
        self.post_message(
            JobRequested(item.node, pid, is_process=item.pid is not None, rule=item.rule)
        )


class NodeDashboard(Dashboard):
    """The dashboard of a job on a node; `esc` on the overview goes back to the nodes."""

    hints = (("esc", "nodes"), *HINTS)

    def __init__(self, view_state: ViewState) -> None:
        super().__init__(view_state)
        self._above = LineView(id="above")
        self._sentence = ""
        self._findings: Sequence[JobFinding] = ()

    def heads(self) -> Sequence[Widget]:
        """Why the node sends nothing, and what is wrong with the job as a whole."""
        return (self._above,)

    def explain(self, sentence: str, findings: Sequence[JobFinding]) -> None:
        """Say why the node sends nothing, if so, and the findings of the job that name it."""
        self._sentence, self._findings = sentence, findings
        self._draw_above()

    def on_mount(self) -> None:
        """Draw the lines above; Textual calls the handler of the base class as well."""
        self._draw_above()

    def _draw_above(self) -> None:
        node, width = self.view_state.settings.node, self.size.width
        lines = job.lines_above(self._sentence, self._findings, node, width)
        self._above.display = bool(lines)
        self._above.show(lines)
        if self.view_state.view is None:
            words = "nothing was received" if self._sentence else "asking for its processes"
            self._header.show((cell(f" mpwatch   {node}   {words}"),))

    def show_snapshot(self) -> None:
        """Draw the page; before the first snapshot say what is waited for."""
        super().show_snapshot()
        self._draw_above()

    async def action_back(self) -> None:  # type: ignore[override]
        """Clear the filter, go back to the overview, or to the nodes."""
        is_filtered = self.view_state.settings.filter or self._filter.display
        if self.current == "0" and not is_filtered:
            self.dismiss()
        else:
            await super().action_back()


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
        self._termination = termination or Termination()
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


def run_job(source: JobSource, spec: str, *, needs_terminal: bool = False) -> int:
    """Show a job until the user quits, SIGTERM or SIGHUP arrives or the terminal is gone.

    Args:
        source: Not yet started; it is stopped before this returns.
        spec: Name of the job.
        needs_terminal: See `Termination`.

    Returns:
        An exit code: 128 + n after SIGTERM or SIGHUP.
    """
    termination = Termination(needs_terminal=needs_terminal)
    return termination.run(JobApp(source, spec, termination))
