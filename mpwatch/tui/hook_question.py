"""The question whether to inject the hook: its state, its line, and the plan as text."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from mpwatch.model.ids import ProcessId
from mpwatch.model.injection import InjectionPlan, PlannedInjection
from mpwatch.model.samples import ProcSample
from mpwatch.model.snapshot import Snapshot
from mpwatch.tui.elements.styled_text import Line, cell, cut, line, width_of, wrapped

READABLE_AFTER_S = 0.5
"""A key pressed sooner was meant for the previous screen contents."""
REPLAN_S = 2.0
"""Minimum interval between plans while processes start and exit."""
BLOCKED_S = 2.0
"""A main thread that has used no cpu for so long in one call is blocked."""
ENDS_S = 10.0
"""A call with a time limit of at most this comes back, as the polls of a DataLoader do."""
RETRY_S = 10.0
"""Interval of plans while a process is left out for a reason that passes, such as a tracer."""


class HookQuestion:
    """Whether the question is asked, and its injection plan.

    A plan is made on another thread, since it reads symbols of every interpreter. Attributes are
    read and written on the dashboard's thread.

    Attributes:
        asks: Whether to ask the question as soon as a plan is ready.
        plan: The injection plan; `None` until one was made.
        enter_is_yes: Whether enter answers the question: as long as the user has done nothing else.
            Beside a selected row, enter would seem to open the row.
    """

    def __init__(
        self,
        make_plan: Callable[[Iterable[ProcSample]], InjectionPlan],
        *,
        asks: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make_plan = make_plan
        self._clock = clock
        self.asks = asks
        self.plan: InjectionPlan | None = None
        self.enter_is_yes = True
        self._planned_for: frozenset[ProcessId] = frozenset()
        self._planned_s = float("-inf")
        self._is_planning = False
        self._shown_s: float | None = None

    @property
    def is_shown(self) -> bool:
        """Whether the question is on the top line."""
        return self.asks and self.plan is not None and bool(self.plan.injectable())

    @property
    def takes_keys(self) -> bool:
        """Whether answer keys are enabled: after the time needed to read the question."""
        shown_s = self._shown_s
        is_readable = shown_s is not None and self._clock() - shown_s >= READABLE_AFTER_S
        return self.is_shown and is_readable

    def ask(self) -> None:
        """Ask the question, again if it was answered before."""
        self.asks = True
        self.plan = None
        self.enter_is_yes = True
        self._shown_s = None
        self._planned_s = float("-inf")

    def answered(self) -> None:
        """Close the question."""
        self.asks = False
        self._shown_s = None

    def wants_plan(self, snapshot: Snapshot) -> bool:
        """Whether a new plan is due for this snapshot; if so, mark planning as started."""
        if not self.asks or self._is_planning:
            return False
        processes = _candidates(snapshot)
        if not processes:
            self.plan = None  # the processes that it was about have ended, or have a hook
            self._shown_s = None
            return False
        is_stale = self.plan is None or processes != self._planned_for
        may_change = self.plan is not None and any(each.passes for each in self.plan.processes)
        interval_s = REPLAN_S if is_stale else RETRY_S
        if not (is_stale or may_change) or self._clock() - self._planned_s < interval_s:
            return False
        self._is_planning = True
        self._planned_for = processes
        return True

    def has_subject(self, snapshot: Snapshot) -> bool:
        """Whether there is a process that the question could be about."""
        return bool(_candidates(snapshot))

    def make(self, snapshot: Snapshot) -> InjectionPlan:
        """Make a plan; called on another thread."""
        return self._make_plan([process.sample for process in snapshot.living()])

    def planned(self, plan: InjectionPlan | None) -> None:
        """Store a finished plan, or `None` if planning failed."""
        self._is_planning = False
        self._planned_s = self._clock()
        self.plan = plan
        if self.is_shown and self._shown_s is None:
            self._shown_s = self._clock()


def blocked_in_c(snapshot: Snapshot) -> dict[ProcessId, str]:
    """Processes in which a hook would not begin at once, with what their main threads do.

    The call that begins it is made by the main thread when it comes back to the interpreter. A
    thread that has waited in one call does not, unless that has a short time limit.
    """
    found = {}
    for process in snapshot.living():
        main = next((each for each in process.threads if each.tid == process.pid), None)
        wait = main.waits_on if main is not None else None
        if main is None or wait is None or (wait.timeout_s or ENDS_S + 1) <= ENDS_S:
            continue
        if main.still_s is not None and main.still_s >= BLOCKED_S:
            found[process.process] = process.doing
    return found


def _candidates(snapshot: Snapshot) -> frozenset[ProcessId]:
    return frozenset(
        process.process
        for process in snapshot.living()
        if process.sample.is_python and process.hook.state == "absent"
    )


def _keys(*, enter_is_yes: bool) -> tuple[Line, Line]:
    """The answers, in full and short."""
    enter, short_enter = (" or ", ("enter", "accent")), ("/", ("enter", "accent"))
    full = line(
        ("y", "accent"),
        *(enter if enter_is_yes else ()),
        " yes, ",
        ("n", "accent"),
        " no, ",
        ("d", "accent"),
        " what it does",
    )
    short = line(
        ("y", "accent"),
        *(short_enter if enter_is_yes else ()),
        " yes ",
        ("n", "accent"),
        " no ",
        ("d", "accent"),
        " more",
    )
    return full, short


def question_line(
    plan: InjectionPlan,
    width: int,
    *,
    enter_is_yes: bool,
    blocked: Collection[ProcessId] = (),
) -> Line:
    """The question with its answers; the reasons are shortened to the width.

    Args:
        plan: What an injection would do.
        width: Cells of the line.
        enter_is_yes: Whether enter answers it.
        blocked: Processes in which the hook would not begin at once.
    """
    injected = plan.injectable()
    count = len(injected)
    later = sum(each.process in blocked for each in injected)
    use = f" (useful at once in {count - later})" if later else ""
    asked = line(
        " ",
        (f"inject the hook into {count} process{'' if count == 1 else 'es'}{use}?", "warning"),
        " ",
    )
    full, short = _keys(enter_is_yes=enter_is_yes)
    for left_out in _left_out(plan):
        for keys in (full, short):
            whole = (*asked, *cell(left_out), *keys)
            if width_of(whole) < width:
                return whole
    return cut((*asked, *short), width)


def _left_out(plan: InjectionPlan) -> list[str]:
    """Texts about the processes left out, the longest first."""
    left_out = plan.left_out()
    if not left_out:
        return [""]
    count = len(left_out)
    (reason, its_count), *others = Counter(each.reason for each in left_out).most_common()
    words = f"{count} {'is' if count == 1 else 'are'} left out"
    more = f" and {count - its_count} for other reasons" if others else ""
    return [f"{words}: {reason}{more}. ", f"{words}: {reason[:24].rstrip()}.. ", f"{words}. ", ""]


def plan_lines(
    plan: InjectionPlan, blocked: Mapping[ProcessId, str], width: int
) -> tuple[Line, ...]:
    """The effect of an injection on each process, first where it is of no use at once."""
    # Imported for the first question: not all jobs have one.
    from mpwatch.report.table import TextStyle
    from mpwatch.report.text import plan_text

    text = plan_text(plan, style=TextStyle(width=width, has_colour=False))
    later = [each for each in plan.injectable() if each.process in blocked]
    return (
        line(("inject the hook", "title")),
        cell(""),
        *_later_lines(later, blocked, width),
        *(cell(each) for each in text.splitlines()),
    )


def _later_lines(
    later: Sequence[PlannedInjection], blocked: Mapping[ProcessId, str], width: int
) -> tuple[Line, ...]:
    if not later:
        return ()
    it = "this process" if len(later) == 1 else f"these {len(later)} processes"
    told = (
        f"The hook begins when the main thread comes back to the interpreter. In {it} that thread "
        "is blocked in a call, so the hook stays pending there until the call returns, and does "
        "not help with a job that hangs in it:"
    )
    named = (f"  {each.process.pid:<8} {blocked[each.process]}" for each in later)
    return (
        *wrapped(told, width, "warning"),
        *(cut(cell(words), width) for words in named),
        cell(""),
    )
