"""The dashboard of a job on several machines: nodes, then ranks, then one process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message

from mpwatch.nodes.across.ranks import PlacedRank
from mpwatch.nodes.job_source import JobSource, JobState, ProcessAnswer
from mpwatch.observe.sources.source import Pause, Seek, SetSpeed
from mpwatch.tui.elements.styled_text import Line, cell, line
from mpwatch.tui.pages import job
from mpwatch.tui.pages.job import NodeGroup
from mpwatch.tui.screens.texts import TextScreen
from mpwatch.tui.termination import Termination
from mpwatch.tui.widgets.line_view import LineView
from mpwatch.tui.widgets.live_table import LiveTable

ASK_S = 2.0
"""How often the process that is shown is read again."""
SEEK_S = 10.0
"""How far the keys for moving through a recording go."""


class StateArrived(Message, bubble=False):
    """A new state of the job; it replaces an older one that is still queued."""

    def __init__(self, state: JobState) -> None:
        super().__init__()
        self.state = state

    def can_replace(self, message: Message) -> bool:
        """Replace an older queued state."""
        return isinstance(message, StateArrived)


class AnswerArrived(Message, bubble=False):
    """The details of a process."""

    def __init__(self, answer: ProcessAnswer) -> None:
        super().__init__()
        self.answer = answer


class JobApp(App[None]):
    """Two tables, of which one is shown: nodes and ranks.

    Args:
        source: Not yet started; it is stopped at the end.
        spec: The name of the job.
        termination: Ends the dashboard on signals or a lost terminal.
    """

    TITLE = "mpwatch"
    CSS_PATH = "dashboard.tcss"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1", "page('nodes')", "Nodes", id="job.nodes"),
        Binding("2", "page('ranks')", "Ranks", id="job.ranks"),
        Binding("f", "findings", "Findings in full", id="job.findings"),
        Binding("space", "pause", "Replay: pause or resume", id="job.pause"),
        Binding("right_square_bracket", "seek(1)", "Replay: 10 s forward", id="job.forward"),
        Binding("left_square_bracket", "seek(-1)", "Replay: 10 s back", id="job.backward"),
        Binding("plus,equals_sign", "speed(2)", "Replay: faster", id="job.faster"),
        Binding("minus", "speed(0.5)", "Replay: slower", id="job.slower"),
        Binding("escape", "show_nodes", "Back", id="back"),
        Binding("q", "quit", "Quit", id="quit"),
    ]

    def __init__(
        self, source: JobSource, spec: str, termination: Termination | None = None
    ) -> None:
        super().__init__()
        self._termination = termination
        self.animation_level = "none"
        self.state = JobState(spec)
        self.source = source
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
        """Start the agents."""
        self._detail_lines.styles.height = 2
        self._open("nodes")
        if self._termination is not None:
            self._termination.started(self)
        self.source.start(self._deliver, self._answered)

    def on_unmount(self) -> None:
        """End the agents."""
        self.source.stop()

    def _deliver(self, state: JobState) -> None:
        self.post_message(StateArrived(state))

    def _answered(self, answer: ProcessAnswer) -> None:
        self.post_message(AnswerArrived(answer))

    def on_state_arrived(self, message: StateArrived) -> None:
        """Show the newest state; nothing once the screens have gone, while the app ends."""
        if not self.screen_stack:
            return
        if self._termination is not None:
            self._termination.check_terminal()
        self.state = message.state
        self.draw()
        if isinstance(self.screen, FindingsScreen):
            self.screen.show(self.state)

    def on_answer_arrived(self, message: AnswerArrived) -> None:
        """Show the details of the process on screen."""
        if isinstance(self.screen, RankScreen):
            self.screen.show(message.answer)

    def draw(self) -> None:
        """Draw everything from the newest state."""
        state, width = self.state, self.size.width
        self._head_line.show((job.top_line(state, width),))
        lines = job.finding_lines(state, width)
        self._finding_lines.display = bool(lines)
        self._finding_lines.show(lines)
        # Only the table on screen: a job of 1,000 nodes has 64,000 ranks.
        if self._page == "nodes":
            self._node_table.show(job.node_groups(state), lambda group: job.node_row(group, state))
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
        only = "" if self._only is None else f" of {', '.join(sorted(self._only)[:2])}"
        pages = [
            (f" {digit} {name}{only if name == 'ranks' else ''} ", name == self._page)
            for digit, name in (("1", "nodes"), ("2", "ranks"))
        ]
        keys = "  enter open   f findings   esc back   q quit"
        if self.state.playback is not None:
            keys = "  space pause   [ ] 10 s   + - speed   f findings   esc back   q quit"
        return line(*((text, "chosen" if is_on else "dim") for text, is_on in pages), (keys, "dim"))

    def on_resize(self) -> None:
        """Cut the lines to the new width."""
        self.draw()

    def _open(self, page: str) -> None:
        self._page = page
        self._node_table.display = page == "nodes"
        self._rank_table.display = page == "ranks"
        (self._node_table if page == "nodes" else self._rank_table).focus()
        self.draw()

    # --- actions ---------------------------------------------------------------------------------

    def action_page(self, page: str) -> None:
        """Open a page for all nodes."""
        self._only = None
        self._open(page)

    def action_show_nodes(self) -> None:
        """Go back from the ranks to the nodes."""
        self.action_page("nodes")

    def action_pause(self) -> None:
        """Pause or resume a replay."""
        if self.state.playback is not None:
            self.source.control(Pause(not self.state.playback.is_paused))

    def action_seek(self, direction: int) -> None:
        """Move a replay by ten seconds."""
        if self.state.playback is not None:
            to_s = self.state.playback.at_s + direction * SEEK_S
            self.source.control(Seek(max(0.0, to_s)))

    def action_speed(self, factor: float) -> None:
        """Play faster or slower."""
        if self.state.playback is not None:
            self.source.control(SetSpeed(self.state.playback.speed * factor))

    def action_findings(self) -> None:
        """Show all findings in full."""
        if len(self.screen_stack) == 1:
            self.push_screen(FindingsScreen(self.state))

    def on_live_table_moved(self, message: LiveTable.Moved) -> None:
        """Describe the row under the cursor."""
        self._draw_details()

    def on_live_table_chosen(self, message: LiveTable.Chosen) -> None:
        """Open the ranks of a node, or the process of a rank."""
        if self._page == "nodes":
            group = self._node_table.current
            if group is not None:
                self._only = group.names
                self._open("ranks")
        elif (rank := self._rank_table.current) is not None:
            self.push_screen(RankScreen(self.source, rank.view.name, rank.row.pid))


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


class FindingsScreen(TextScreen[None]):
    """All findings in full."""

    KEYS = " esc back"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f,q", "dismiss", "Back", id="findings.back"),
    ]

    def __init__(self, state: JobState) -> None:
        super().__init__()
        self._state = state

    def show(self, state: JobState) -> None:
        """Show a newer state."""
        self._state = state
        self.draw()

    def lines(self, width: int) -> Sequence[Line]:
        """The findings."""
        return job.all_findings(self._state, width)


class RankScreen(TextScreen[None]):
    """One process of a node, requested at intervals while this screen is open."""

    KEYS = " esc back"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss", "Back", id="rank.back"),
    ]

    def __init__(self, source: JobSource, node: str, pid: int) -> None:
        super().__init__()
        self._source = source
        self._node = node
        self._pid = pid
        self._answer: ProcessAnswer | None = None

    def on_mount(self) -> None:
        """Request the process now, and again at intervals."""
        self._ask()
        self.set_interval(ASK_S, self._ask)

    def _ask(self) -> None:
        self._source.ask(self._node, self._pid)

    def show(self, answer: ProcessAnswer) -> None:
        """Show an answer, if it is about this process."""
        if (answer.node, answer.pid) == (self._node, self._pid):
            self._answer = answer
            self.draw()

    def lines(self, width: int) -> Sequence[Line]:
        """The process, or why it is not shown."""
        if self._answer is None:
            return (cell(f"asking {self._node} for process {self._pid}", "dim"),)
        if self._answer.document is None:
            return (cell(self._answer.problem, "warning"),)
        try:
            return job.process_lines(self._answer.document, self._node, width)
        except (KeyError, TypeError, AttributeError) as error:
            return (cell(f"The answer of {self._node} is not understood: {error!r}", "warning"),)
