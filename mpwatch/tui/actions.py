"""Actions available on every screen: stacks, comparison, copying, process actions, replay."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import ClassVar, Protocol, cast

from textual.binding import Binding, BindingType
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.widgets import Input

from mpwatch.attach.process_actions import ActionRefused, ProcessActions
from mpwatch.model.findings import Finding
from mpwatch.model.ids import ProcessId
from mpwatch.model.injection import InjectionPlan
from mpwatch.model.snapshot import Process, Snapshot
from mpwatch.observe.sources.source import (
    InjectHook,
    ReadAllocators,
    Seek,
    SetSpeed,
    Step,
    TakeStacks,
)
from mpwatch.tui.elements.page import tab_separated
from mpwatch.tui.hook_question import HookQuestion, blocked_in_c
from mpwatch.tui.pages.gpu import allocator_request, request_words
from mpwatch.tui.screens.base import LiveScreen, PagesScreen
from mpwatch.tui.screens.dashboard import CompareScreen, MergedScreen, TimeScreen
from mpwatch.tui.screens.output import OutputScreen
from mpwatch.tui.screens.process_actions import ProcessActionsScreen, write_new
from mpwatch.tui.screens.texts import FindingScreen, InjectionScreen
from mpwatch.tui.view_state import SEEK_S, ViewState
from mpwatch.tui.widgets.line_view import TonedApp


class SnapshotApp(TonedApp[int]):
    """An application that shows one job; base of the action classes.

    Attributes:
        view_state: The source and the displayed snapshot.
    """

    view_state: ViewState
    process_actions: ProcessActions
    wall_clock: Callable[[], float] = time.time

    def redraw(self) -> None:
        """Draw the active screen again."""
        screen = self.screen
        if isinstance(screen, LiveScreen):
            screen.show_snapshot()

    def show_message(self, words: str, *, failed: bool = False) -> None:
        """Show a notification; markup in the text is not interpreted.

        One that is no failure removes all earlier ones: they would cover the details of a page.
        """
        if not failed:
            self.clear_notifications()
        severity = "error" if failed else "information"
        self.notify(words, severity=severity, timeout=6, markup=False)  # type: ignore[arg-type]

    @property
    def process_in_front(self) -> ProcessId | None:
        """The current process of the active screen."""
        screen = self.screen
        if isinstance(screen, PagesScreen):
            return screen.current_process
        return screen.finding.process if isinstance(screen, FindingScreen) else None


WHERE_STACKS_ARE = "1 shows them, m merges them"


class StackActions(SnapshotApp):
    """Actions that change nothing in the job: stacks, comparison, copying, files."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "take_stacks", "Take all stacks now", id="stacks.take"),
        Binding("n", "native", "Stacks with native frames", id="stacks.native"),
        Binding("v", "locals", "Stacks with local variables", id="stacks.locals"),
        Binding("f", "follow", "Start or stop following stacks", id="stacks.follow"),
        Binding("w", "time", "What processes do with their time", id="time"),
        Binding("m", "merged", "Merge the stacks of all processes", id="stacks.merged"),
        Binding("o", "output", "What the job prints", id="output"),
        Binding("b", "save_snapshot", "Save a snapshot to compare with", id="compare.mark"),
        Binding("d", "compare", "Compare with the saved snapshot", id="compare.open"),
        Binding("y", "copy", "Copy the row under the cursor", id="copy"),
        Binding("e", "export", "Write this page to a file", id="export"),
        Binding("ctrl+s", "save_picture", "Save the screen as SVG", id="picture"),
    ]

    def action_take_stacks(self) -> None:
        """Take the stacks of every process."""
        self._ask_stacks(TakeStacks(), f"Taking the stacks of every process; {WHERE_STACKS_ARE}.")

    def action_native(self) -> None:
        """Take the stacks of one process with native frames."""
        process = self.process_in_front
        if process is not None:
            words = f"Taking the stacks of {process.pid} with native frames; {WHERE_STACKS_ARE}."
            self._ask_stacks(TakeStacks(process, native=True), words)

    def action_locals(self) -> None:
        """Take the stacks of one process with local variables."""
        process = self.process_in_front
        if process is not None:
            words = f"Taking the stacks of {process.pid} with local variables; {WHERE_STACKS_ARE}."
            self._ask_stacks(TakeStacks(process, locals=True), words)

    def _ask_stacks(self, command: TakeStacks, words: str) -> None:
        problem = self.view_state.ask(command)
        self.show_message(problem or words, failed=problem is not None)

    def action_follow(self) -> None:
        """Start or stop following the stacks of the current process."""
        if not self.view_state.source.is_live:
            self.show_message("This is a recording: no stacks are taken.", failed=True)
            return
        if self.view_state.follows and self.view_state.followed is None:
            words = "Stacks are followed on the page Threads and in a process; f stops it there."
            self.show_message(words)
            return
        follows = self.view_state.toggle_following()
        self.show_message("Following stacks." if follows else "No longer following stacks.")
        self.redraw()

    def action_time(self) -> None:
        """Open the account of time."""
        if not isinstance(self.screen, TimeScreen):
            self.push_screen(TimeScreen(self.view_state))

    def action_merged(self) -> None:
        """Open the merged stacks of all processes."""
        if not isinstance(self.screen, MergedScreen):
            self.push_screen(MergedScreen(self.view_state))

    def action_output(self) -> None:
        """Open the output of the job."""
        node = self.view_state.settings.node
        if not self.view_state.source.is_live:
            self.show_message("A recording does not keep what the job prints.", failed=True)
        elif node:
            words = f"What a job prints on another node is not read; it is on {node}."
            self.show_message(words, failed=True)
        elif not isinstance(self.screen, OutputScreen):
            self.push_screen(OutputScreen(self.view_state))

    def action_save_snapshot(self) -> None:
        """Save the displayed snapshot for comparison."""
        self.view_state.save_snapshot()
        self.show_message("Snapshot saved; press d to compare.")

    def action_compare(self) -> None:
        """Compare with the saved snapshot."""
        if self.view_state.saved is None:
            self.show_message(
                "No snapshot is saved to compare with; press b to save one.", failed=True
            )
        elif not isinstance(self.screen, CompareScreen):
            self.push_screen(CompareScreen(self.view_state))

    def action_copy(self) -> None:
        """Copy the row under the cursor with its details, or the open finding."""
        text = self._selection()
        if text:
            self.copy_to_clipboard(text)
            self.show_message("Copied.")

    def _selection(self) -> str:
        screen, view = self.screen, self.view_state.view
        if isinstance(screen, FindingScreen):
            return screen.plain
        if isinstance(screen, PagesScreen) and view is not None:
            item = screen.page_view.current
            if item is not None:
                return tab_separated(
                    screen.page_view.page, [item], screen.scope_of(view), with_details=True
                )
        return ""

    def action_export(self) -> None:
        """Write all rows of the current page, uncut, to a new file."""
        screen, view = self.screen, self.view_state.view
        if not isinstance(screen, PagesScreen) or view is None:
            return
        page_view = screen.page_view
        text = tab_separated(page_view.page, list(page_view.table.items), screen.scope_of(view))
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(self.wall_clock()))
        path = f"mpwatch-{page_view.page.name}-{view.snapshot.root.pid}-{stamp}.tsv"
        try:
            self.show_message(f"This page was written to {write_new(path, text)}.")
        except ActionRefused as refusal:
            self.show_message(str(refusal), failed=True)

    def action_save_picture(self) -> None:
        """Save the screen as SVG in this directory."""
        try:
            path = self.save_screenshot(path=".")
        except OSError as error:
            self.show_message(f"The picture cannot be written: {error.strerror}.", failed=True)
            return
        self.show_message(f"The screen was saved as {path}.")


class JobActions(StackActions):
    """Actions on a process."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("x", "act", "Process actions", id="act"),
        Binding("a", "read_allocators", "Ask the hooks for allocator figures", id="gpu.allocators"),
    ]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Enable the key of the GPU page only there, and only in a running job."""
        if action == "read_allocators":
            screen = self.screen
            is_shown = isinstance(screen, PagesScreen) and screen.page_view.page.name == "gpu"
            return is_shown and self.view_state.source.is_live
        return super().check_action(action, parameters)

    def action_read_allocators(self) -> None:
        """Ask hooks once for the figures of torch's CUDA allocator."""
        view = self.view_state.view
        if view is None:
            return
        request = allocator_request(view)
        problem = None
        if request.asked:
            problem = self.view_state.ask(ReadAllocators(request.asked))
        is_refused = problem is not None or not request.asked
        self.show_message(problem or request_words(request), failed=is_refused)

    def action_act(self) -> None:
        """Open the list of process actions, unless read-only."""
        process = self.process_in_front
        if self.view_state.settings.is_readonly:
            self.show_message(
                "This dashboard is read-only: process actions are disabled.", failed=True
            )
        elif process is not None and not isinstance(self.screen, ProcessActionsScreen):
            self.push_screen(ProcessActionsScreen(self.view_state, process, self.process_actions))


NO_SUBJECT = "There is no process without the hook that could use it."


class HookActions(JobActions):
    """Injecting the hook: the question on the top line, its answers, and repeating it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("i", "ask_hook", "Inject the hook; asks first", id="hook.ask"),
    ]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Enable the answer keys only while the question is shown."""
        if action in ("answer_hook", "confirm_hook", "show_injection"):
            question = self.view_state.question
            is_typing = isinstance(self.focused, Input)
            is_visible = isinstance(self.screen, PagesScreen) and not is_typing
            if not is_visible or question is None or not question.takes_keys:
                return False
            return action != "confirm_hook" or question.enter_is_yes
        return super().check_action(action, parameters)

    def consider_asking(self, snapshot: Snapshot) -> None:
        """Start making a plan if the question is to be asked."""
        question = self.view_state.question
        if question is not None and question.wants_plan(snapshot):
            self.run_worker(
                lambda: self._plan(question, snapshot),
                thread=True,
                group="plan",
                exit_on_error=False,
            )

    def _plan(self, question: HookQuestion, snapshot: Snapshot) -> None:
        """Make a plan, on a separate thread."""
        plan = None
        try:
            plan = question.make(snapshot)
        finally:
            self.call_from_thread(self._planned, question, plan)

    def _planned(self, question: HookQuestion, plan: InjectionPlan | None) -> None:
        question.planned(plan)
        if plan is None:
            question.answered()
            self.show_message("The injection could not be planned.", failed=True)
        elif not plan.injectable():
            question.answered()
            left_out = plan.left_out()
            if left_out:
                first = left_out[0]
                self.show_message(
                    f"The hook cannot be injected: {first.process.pid}: {first.reason}."
                )
            else:
                self.show_message(NO_SUBJECT)
        view = self.view_state.view
        if view is not None:
            self.consider_asking(view.snapshot)  # the job may have ended while the plan was made
        self.redraw()

    def action_ask_hook(self) -> None:
        """Ask whether to inject the hook."""
        question, view = self.view_state.question, self.view_state.view
        if question is None:
            node = self.view_state.settings.node
            why = "This dashboard injects nothing: it is shown in a browser."
            if self.view_state.settings.is_readonly:
                why = "This dashboard is read-only: it injects nothing."
            if not self.view_state.source.is_live:
                why = "This is a recording: nothing can be injected."
            if node and view is not None:
                why = f"Nothing is injected on other nodes: {view.attach_advice}."
            self.show_message(why, failed=True)
        elif view is not None and not question.has_subject(view.snapshot):
            self.show_message(NO_SUBJECT)
        elif view is not None and not question.is_shown:
            question.ask()
            self.consider_asking(view.snapshot)

    def action_answer_hook(self, yes: bool) -> None:
        """Inject the hook, or close the question."""
        question = self.view_state.question
        if question is None or question.plan is None:
            return
        question.answered()
        if yes:
            problem = self.view_state.ask(InjectHook())
            count = len(question.plan.injectable())
            words = f"The hook is being injected into {count} process{'es' * (count != 1)}."
            self.show_message(problem or words, failed=problem is not None)
        else:
            self.show_message("Nothing is injected; i asks again.")
        self.redraw()

    def action_confirm_hook(self) -> None:
        """Inject the hook."""
        self.action_answer_hook(True)

    def action_show_injection(self) -> None:
        """Open the injection plan; the question can be answered there."""
        question = self.view_state.question
        if question is None or question.plan is None:
            return

        def answered(yes: bool | None) -> None:
            if yes is not None:
                self.action_answer_hook(yes)

        view = self.view_state.view
        blocked = blocked_in_c(view.snapshot) if view is not None else {}
        self.push_screen(InjectionScreen(question.plan, blocked), answered)


class ReplayActions(HookActions):
    """Moving through a recording."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("full_stop", "step(1)", "Replay: next sample", key_display=".", id="replay.next"),
        Binding("comma", "step(-1)", "Replay: previous sample", key_display=",", id="replay.last"),
        Binding(
            "right_square_bracket",
            "seek(1)",
            "Replay: 10 s forward",
            key_display="]",
            id="replay.on",
        ),
        Binding(
            "left_square_bracket",
            "seek(-1)",
            "Replay: 10 s back",
            key_display="[",
            id="replay.back",
        ),
        Binding(
            "plus,equals_sign", "speed(2)", "Replay: faster", key_display="+", id="replay.faster"
        ),
        Binding("minus", "speed(0.5)", "Replay: slower", key_display="-", id="replay.slower"),
        Binding("t", "to_finding", "Replay: to the start of this finding", id="replay.finding"),
    ]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Enable the keys of a replay only in a replay."""
        if action in ("step", "seek", "speed", "to_finding"):
            return not self.view_state.source.is_live
        return super().check_action(action, parameters)

    def action_step(self, readings: int) -> None:
        """Pause, and move by samples."""
        self._ask(Step(readings))

    def action_seek(self, direction: int) -> None:
        """Move by ten seconds."""
        if (now := self.view_state.playback) is not None:
            to_s = now.at_s + direction * SEEK_S
            self._ask(Seek(max(0.0, min(now.length_s, to_s))))

    def action_speed(self, factor: float) -> None:
        """Play faster or slower."""
        if (now := self.view_state.playback) is not None:
            self._ask(SetSpeed(now.speed * factor))

    def action_to_finding(self) -> None:
        """Seek to the time at which the selected finding was first seen."""
        screen, view = self.screen, self.view_state.view
        finding = screen.finding if isinstance(screen, FindingScreen) else None
        if view is None or finding is None or finding.first_seen_s is None:
            return
        playback = view.snapshot.playback
        if playback is not None:
            began_s = view.snapshot.at_s - playback.at_s
            self._ask(Seek(max(0.0, finding.first_seen_s - began_s)))

    def _ask(self, command: Step | Seek | SetSpeed) -> None:
        problem = self.view_state.ask(command)
        if problem is not None:
            self.show_message(problem, failed=True)


class JumpTarget(Protocol):
    """The application interface that a jump uses."""

    view_state: ViewState

    def open_finding(self, finding: Finding) -> None:
        """Show a finding in full."""

    def jump_to(self, process: ProcessId) -> None:
        """Show a process in the tree."""


class JumpProvider(Provider):
    """Finds processes and findings by any part of their names."""

    @property
    def _app(self) -> JumpTarget:
        return cast(JumpTarget, self.app)

    def _targets(self) -> list[tuple[str, str, Process | Finding]]:
        view = self._app.view_state.view
        if view is None:
            return []
        snapshot = view.snapshot
        findings = [(f"finding: {f.rule}", f.summary, f) for f in snapshot.findings]
        processes = [
            (f"process: {p.pid} {p.label}", p.doing or view.state(p), p) for p in snapshot.processes
        ]
        return [*findings, *processes]

    def _open(self, target: Process | Finding) -> None:
        if isinstance(target, Finding):
            self._app.open_finding(target)
        else:
            self._app.jump_to(target.process)

    async def discover(self) -> Hits:
        """Findings and the first processes, before anything is typed."""
        for title, about, target in self._targets()[:12]:
            yield DiscoveryHit(title, partial(self._open, target), help=about)

    async def search(self, query: str) -> Hits:
        """Processes and findings whose name matches."""
        matcher = self.matcher(query)
        for title, about, target in self._targets():
            score = matcher.match(title)
            if score > 0:
                yield Hit(score, matcher.highlight(title), partial(self._open, target), help=about)
