"""Keys that mean the same on every screen: stacks, comparing, copying, acting, replaying."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ClassVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.widgets import Input

from mpwatch.model.commands import InjectHook, Seek, SetSpeed, Step, TakeStacks
from mpwatch.model.ids import ProcessId
from mpwatch.model.injection import InjectionPlan
from mpwatch.model.snapshot import Snapshot
from mpwatch.tui.elements.clipboard import copied
from mpwatch.tui.hook_consent import HookQuestion
from mpwatch.tui.process_actions import Deeds, NotDone, write_new
from mpwatch.tui.screens.actions import ActingScreen
from mpwatch.tui.screens.base import LiveScreen
from mpwatch.tui.screens.compare_merge import CompareScreen, MergedScreen
from mpwatch.tui.screens.finding import FindingScreen
from mpwatch.tui.screens.injection import InjectionScreen
from mpwatch.tui.screens.pages import PagesScreen
from mpwatch.tui.view_state import Watch

SEEK_S = 10.0


class WatchApp(App[int]):
    """A program that shows one job: what its verbs work on.

    Attributes:
        watch_state: The source and the moment on screen.
    """

    watch_state: Watch
    deeds: Deeds
    wall_clock: Callable[[], float] = time.time

    def redraw(self) -> None:
        """Draw the screen in front again."""
        screen = self.screen
        if isinstance(screen, LiveScreen):
            screen.show_moment()

    def tell(self, words: str, *, failed: bool = False) -> None:
        """Say something in passing; the words are shown as they are."""
        severity = "error" if failed else "information"
        self.notify(words, severity=severity, timeout=6, markup=False)  # type: ignore[arg-type]

    @property
    def process_in_front(self) -> ProcessId | None:
        """The process the screen in front is about."""
        screen = self.screen
        if isinstance(screen, PagesScreen):
            return screen.current_process
        return screen.finding.process if isinstance(screen, FindingScreen) else None


class LookingVerbs(WatchApp):
    """Looking closer without changing anything."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "take_stacks", "Take all stacks now", id="stacks.take"),
        Binding("n", "native", "Stacks with native frames", id="stacks.native"),
        Binding("v", "locals", "Stacks with local variables", id="stacks.locals"),
        Binding("f", "follow", "Follow stacks of a process, or stop", id="stacks.follow"),
        Binding("m", "merged", "Merge the stacks of all", id="stacks.merged"),
        Binding("b", "keep", "Keep this moment to compare with", id="compare.mark"),
        Binding("d", "compare", "Differences to the kept moment", id="compare.open"),
        Binding("y", "copy", "Copy what the cursor is on", id="copy"),
        Binding("e", "export", "Write this page to a file", id="export"),
        Binding("ctrl+s", "save_picture", "Save a picture of the screen", id="picture"),
    ]

    def action_take_stacks(self) -> None:
        """Take the stacks of every process."""
        self._ask_stacks(TakeStacks(), "Stacks of every process are being taken.")

    def action_native(self) -> None:
        """Take the stacks of one process with native frames."""
        process = self.process_in_front
        if process is not None:
            words = f"Stacks of {process.pid} with native frames are being taken."
            self._ask_stacks(TakeStacks(process, native=True), words)

    def action_locals(self) -> None:
        """Take the stacks of one process with local variables."""
        process = self.process_in_front
        if process is not None:
            words = f"Stacks of {process.pid} with local variables are being taken."
            self._ask_stacks(TakeStacks(process, locals=True), words)

    def _ask_stacks(self, command: TakeStacks, words: str) -> None:
        problem = self.watch_state.ask(command)
        self.tell(problem or words, failed=problem is not None)

    def action_follow(self) -> None:
        """Begin or stop to follow the stacks of the process in front."""
        follows = self.watch_state.toggle_following()
        self.tell("Stacks are followed." if follows else "Stacks are not followed any more.")
        self.redraw()

    def action_merged(self) -> None:
        """Show what all processes do, the same taken together."""
        if not isinstance(self.screen, MergedScreen):
            self.push_screen(MergedScreen(self.watch_state))

    def action_keep(self) -> None:
        """Keep the moment on screen."""
        self.watch_state.mark()
        self.tell("This moment is kept; d shows what differs from it.")

    def action_compare(self) -> None:
        """Show what differs from the moment that was kept."""
        if self.watch_state.marked is None:
            self.tell("No moment is kept to compare with; b keeps the one on screen.", failed=True)
        elif not isinstance(self.screen, CompareScreen):
            self.push_screen(CompareScreen(self.watch_state))

    def action_copy(self) -> None:
        """Copy the row under the cursor with its details, or the finding in front."""
        text = self._selection()
        if text:
            self.copy_to_clipboard(text)
            self.tell("Copied.")

    def _selection(self) -> str:
        screen, moment = self.screen, self.watch_state.moment
        if isinstance(screen, FindingScreen):
            return screen.plain
        if isinstance(screen, PagesScreen) and moment is not None:
            item = screen.view.current
            if item is not None:
                return copied(screen.view.page, [item], screen.scope_of(moment), with_details=True)
        return ""

    def action_export(self) -> None:
        """Write the rows of the page in front, all of them and uncut, to a new file."""
        screen, moment = self.screen, self.watch_state.moment
        if not isinstance(screen, PagesScreen) or moment is None:
            return
        view = screen.view
        text = copied(view.page, list(view.table.items), screen.scope_of(moment))
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(self.wall_clock()))
        path = f"mpwatch-{view.page.name}-{moment.snapshot.root.pid}-{stamp}.tsv"
        try:
            self.tell(f"This page was written to {write_new(path, text)}.")
        except NotDone as refusal:
            self.tell(str(refusal), failed=True)

    def action_save_picture(self) -> None:
        """Save the screen as SVG in this directory."""
        try:
            path = self.save_screenshot(path=".")
        except OSError as error:
            self.tell(f"The picture cannot be written: {error.strerror}.", failed=True)
            return
        self.tell(f"The screen was saved as {path}.")


class ActingVerbs(LookingVerbs):
    """Doing something to a process."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("x", "act", "Do something to this process", id="act"),
    ]

    def action_act(self) -> None:
        """Open the list of what can be done, unless that is forbidden."""
        process = self.process_in_front
        if self.watch_state.viewing.is_readonly:
            self.tell("This dashboard is read-only: it acts on nothing.", failed=True)
        elif process is not None and not isinstance(self.screen, ActingScreen):
            self.push_screen(ActingScreen(self.watch_state, process, self.deeds))


class HookVerbs(ActingVerbs):
    """Injecting the hook: the question on the top line, its answers, and asking it again."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("i", "ask_hook", "Inject the hook; asks first", id="hook.ask"),
    ]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A key answers the question only where and while it is shown."""
        if action in ("answer_hook", "show_injection"):
            question = self.watch_state.question
            is_typing = isinstance(self.focused, Input)
            is_visible = isinstance(self.screen, PagesScreen) and not is_typing
            return is_visible and question is not None and question.takes_keys
        if action == "ask_hook":
            return self.watch_state.source.is_live
        return super().check_action(action, parameters)

    def consider_asking(self, snapshot: Snapshot) -> None:
        """Have a plan made where the question is to be asked."""
        question = self.watch_state.question
        if question is not None and question.wants_plan(snapshot):
            self.run_worker(
                lambda: self._plan(question, snapshot),
                thread=True,
                group="plan",
                exit_on_error=False,
            )

    def _plan(self, question: HookQuestion, snapshot: Snapshot) -> None:
        """Make a plan, on a thread of its own."""
        plan = None
        try:
            plan = question.make(snapshot)
        finally:
            self.call_from_thread(self._planned, question, plan)

    def _planned(self, question: HookQuestion, plan: InjectionPlan | None) -> None:
        question.planned(plan)
        if plan is None:
            question.answered()
            self.tell("What an injection would do could not be found out.", failed=True)
        elif not plan.injectable():
            question.answered()
            left_out = plan.left_out()
            if left_out:
                first = left_out[0]
                self.tell(f"The hook cannot be injected: {first.process.pid}: {first.reason}.")
            else:
                self.tell("There is no process without the hook that could use it.")
        self.redraw()

    def action_ask_hook(self) -> None:
        """Ask whether to inject the hook."""
        question, moment = self.watch_state.question, self.watch_state.moment
        if question is None:
            self.tell("This dashboard is read-only: it injects nothing.", failed=True)
        elif moment is not None and not question.is_shown:
            question.ask()
            self.consider_asking(moment.snapshot)

    def action_answer_hook(self, yes: bool) -> None:
        """Inject the hook, or ask no more."""
        question = self.watch_state.question
        if question is None or question.plan is None:
            return
        question.answered()
        if yes:
            problem = self.watch_state.ask(InjectHook())
            count = len(question.plan.injectable())
            words = f"The hook is being injected into {count} process{'es' * (count != 1)}."
            self.tell(problem or words, failed=problem is not None)
        else:
            self.tell("Nothing is injected; i asks again.")
        self.redraw()

    def action_show_injection(self) -> None:
        """Show what an injection would do; it can be answered there."""
        question = self.watch_state.question
        if question is None or question.plan is None:
            return

        def answered(yes: bool | None) -> None:
            if yes is not None:
                self.action_answer_hook(yes)

        self.push_screen(InjectionScreen(question.plan), answered)


class ReplayVerbs(HookVerbs):
    """Moving through a recording."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("full_stop", "step(1)", "Replay: next reading", key_display=".", id="replay.next"),
        Binding("comma", "step(-1)", "Replay: last reading", key_display=",", id="replay.last"),
        Binding(
            "right_square_bracket", "seek(1)", "Replay: 10 s on", key_display="]", id="replay.on"
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
        Binding("t", "to_finding", "Replay: to where this finding began", id="replay.finding"),
    ]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys of a replay mean nothing on a running job."""
        if action in ("step", "seek", "speed", "to_finding"):
            return not self.watch_state.source.is_live
        return super().check_action(action, parameters)

    def action_step(self, readings: int) -> None:
        """Pause, and move by readings."""
        self._ask(Step(readings))

    def action_seek(self, direction: int) -> None:
        """Move by ten seconds."""
        moment = self.watch_state.moment
        if moment is not None and moment.snapshot.playback is not None:
            at_s = moment.snapshot.playback.at_s + direction * SEEK_S
            self._ask(Seek(max(0.0, at_s)))

    def action_speed(self, factor: float) -> None:
        """Play faster or slower."""
        moment = self.watch_state.moment
        if moment is not None and moment.snapshot.playback is not None:
            self._ask(SetSpeed(moment.snapshot.playback.speed * factor))

    def action_to_finding(self) -> None:
        """Go to the moment the finding in front was first seen."""
        screen, moment = self.screen, self.watch_state.moment
        finding = screen.finding if isinstance(screen, FindingScreen) else None
        if moment is None or finding is None or finding.first_seen_s is None:
            return
        playback = moment.snapshot.playback
        if playback is not None:
            began_s = moment.snapshot.at_s - playback.at_s
            self._ask(Seek(max(0.0, finding.first_seen_s - began_s)))

    def _ask(self, command: Step | Seek | SetSpeed) -> None:
        problem = self.watch_state.ask(command)
        if problem is not None:
            self.tell(problem, failed=True)
